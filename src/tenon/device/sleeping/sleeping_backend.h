// A driver whose memory can sleep: contents away, addresses kept, physical memory with others.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tenon/device/forwarding_backend.h"
#include "tenon/device/sleeping/sleep_listener.h"

namespace tenon {

// Stands before another backend and keeps a table of the pages that are mapped through it. So any
// policy can be put to sleep as a whole, which serving engines call sleep mode. A segment is pages
// at addresses of its own. One object for each tag; while one sleeps, others over the same driver
// work.
//
//   awake    addresses -> pages        sleep()   waits for the device, copies, unmaps, releases
//   asleep   addresses -> nothing      wake()    creates, maps, copies back; the same addresses
//
// While it sleeps, blocks may be freed, pages mapped elsewhere and new memory made (it is awake).
// An allocator above may hand out a free block that sleeps: empty_cache() before sleep(), or
// allocate after wake(). Contents must not be touched, and copy and fill refuse sleeping addresses.
// Pages that are mapped nowhere lose their contents. Pages cannot be exported: another process
// would keep them.
//
// Failure: sleep() throws DeviceError if the driver refuses pages, and those stay awake. wake()
// throws OutOfMemory if the driver has too little left. Each page is then either awake or asleep,
// and wake() may be called again. Thread-safe: one mutex, held during driver calls. The destructor
// waits for the functions by tag of other threads. Listeners hear of both. O(pages) for both.
class SleepingBackend final : public ForwardingBackend {
 public:
  // Requires: `driver` outlives it. Throws InvalidArgument for an empty tag, without virtual
  // memory, and for memory that the host cannot copy. A simulated device without real memory may
  // sleep by kDrop alone.
  SleepingBackend(Backend& driver, std::string tag);
  ~SleepingBackend() override;
  SleepingBackend(const SleepingBackend&) = delete;
  SleepingBackend& operator=(const SleepingBackend&) = delete;

  // Puts all memory to sleep; what is asleep stays as it is. Returns the bytes that went back to
  // the driver.
  std::uint64_t sleep(SleepLevel level);
  // The same for the segment or page that contains `address`. Throws InvalidArgument where there is
  // none.
  std::uint64_t sleep_segment(const void* address, SleepLevel level);
  // Returns the bytes that were taken from the driver. Where that is short, the layers above are
  // asked for idle memory first (shortage.h), with no lock held.
  std::uint64_t wake();

  // The tag; bytes that sleep, that are awake, and on the host.
  const std::string& tag() const { return tag_; }
  std::uint64_t sleeping_bytes() const;
  std::uint64_t awake_bytes() const;
  std::uint64_t host_bytes() const;  // kept on the host for wake()

  // --- Backend.
  std::string description() const override;
  const BackendLimits& limits() const override { return limits_; }
  std::optional<Segment> allocate_segment(std::uint64_t size_bytes, MemoryKind kind) override;
  void free_segment(const Segment& segment) override;
  std::optional<PageHandle> create_pages(std::uint64_t size_bytes) override;
  void release_pages(PageHandle pages) override;
  bool map(std::uintptr_t address, PageHandle pages) override;
  bool set_access(std::uintptr_t address, std::uint64_t size_bytes) override;
  void unmap(std::uintptr_t address, PageHandle pages) override;
  std::int64_t export_pages(PageHandle) override { refuse("export_pages"); }
  PageHandle import_pages(std::int64_t, std::uint64_t) override { refuse("import_pages"); }
  void purge(void* data, std::uint64_t size_bytes) override;
  void copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) override;
  void fill(void* dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream) override;

 private:
  struct Pages {
    std::uint64_t size_bytes = 0;
    PageHandle driver;      // the driver's own; id 0: asleep
    bool released = false;  // the driver takes them back with their last mapping
    std::vector<std::uintptr_t> addresses;  // where they are mapped
    std::vector<std::uint8_t> contents;     // while asleep by kToHost
  };
  struct Mapping {
    std::uint64_t pages = 0;
    bool accessible = false;
  };
  using Mappings = std::map<std::uintptr_t, Mapping>;

  [[noreturn]] void refuse(const char* call) const;
  // --- Under mutex_.
  PageHandle enter(PageHandle of_the_driver);
  Pages& known(PageHandle pages, const char* call);
  bool is_asleep(const Mapping& mapping) const { return pages_.at(mapping.pages).driver.id == 0; }
  Mappings::const_iterator at_or_before(std::uintptr_t address) const;
  bool touches_sleep(std::uintptr_t address, std::uint64_t size_bytes) const;
  void check_awake(const void* address, std::uint64_t size_bytes, const char* call) const;
  std::vector<std::uint8_t> read(const Pages& pages);
  void put_to_sleep(Pages& pages, SleepLevel level);
  bool back(Pages& pages);
  std::uint64_t wake_what_fits(std::uint64_t* refused_bytes);  // not under mutex_
  bool map_again(const Pages& pages, PageHandle fresh, std::size_t count);
  template <typename Change>
  std::uint64_t change_all(SleepChange::What what, Change&& change);
  std::uint64_t bytes(bool asleep) const;

  const std::string tag_;
  BackendLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Pages> pages_;  // by the number in our handles
  Mappings mappings_;
  std::map<std::uintptr_t, std::uint64_t> segments_;  // base -> pages
  std::uint64_t last_pages_ = 0;
};

// All backends of that tag in the process. sleep throws InvalidArgument for a tag that no backend
// has, naming those there are.
std::uint64_t sleep(const std::string& tag, SleepLevel level);
std::uint64_t wake(const std::string& tag);

}  // namespace tenon
