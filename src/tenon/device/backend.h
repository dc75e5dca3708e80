// The contract that a device's driver fulfils: where bytes come from. It knows nothing of policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tenon/base/error.h"
#include "tenon/device/device.h"
#include "tenon/device/driver_ledger.h"

namespace tenon {

// What kind of memory a segment is.
enum class MemoryKind : std::uint8_t {
  kDevice,   // the device's own memory
  kPinned,   // host memory that the device can reach
  kManaged,  // migrates by itself
  kShared,   // one memory for host and device
};

// A piece of memory straight from a driver. `base` is the device address. It may be fake on a
// simulated device, and null where a driver has handles only. `host` is null when the host cannot
// reach it.
struct Segment {
  void* base = nullptr;
  void* host = nullptr;
  std::uint64_t size_bytes = 0;
  std::uint64_t handle = 0;  // opaque; the backend's own
  MemoryKind kind = MemoryKind::kDevice;
};

// Addresses without memory behind them.
struct AddressRange {
  std::uintptr_t base = 0;
  std::uint64_t size_bytes = 0;
};

// Physical pages without an address.
struct PageHandle {
  std::uint64_t id = 0;  // opaque; 0 is none
  std::uint64_t size_bytes = 0;
};

// A point in a stream's work, recorded by Backend::record. A plain value; destroy_event gives it
// back.
struct Event {
  std::uint64_t id = 0;  // opaque; 0 is none
};

// What a device can do, and in which units. The same as long as the backend lives.
struct BackendLimits {
  std::uint64_t alignment = 256;            // of every segment's base
  std::uint64_t page_granularity = 0;       // of create_pages, map and unmap; 0: no virtual memory
  std::uint64_t recommended_working_set_bytes = 0;
  bool unified = false;                     // host and device share one memory
  bool has_virtual_memory = false;          // reserve_address ... release_pages
  bool can_map_twice = false;               // one handle at two addresses at once
  bool has_real_memory = true;              // addresses may be dereferenced by copy and fill
  bool can_export = false;                  // export_pages and import_pages
  bool has_streams = true;                  // false: every stream is done when the host is
  std::uint64_t idle_ns = 0;                // memory idle so long should go back; 0: when asked
};

// The memory of a device, in bytes.
struct BackendMemory {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
};

// One device's driver.
//
// Failure: lack of memory is a value (std::nullopt, or false from map). Any other failure throws
// DeviceError with the call, its arguments and the driver's text. A failed call changes nothing.
// A capability that limits() denies throws DeviceError when used all the same.
// Complexity: the driver's.
// Thread safety: every function may be called from any thread.
class Backend {
 public:
  virtual ~Backend() = default;

  // The device, what it can do, and what memory it has now. memory() may ask the driver.
  virtual Device device() const = 0;
  virtual std::string description() const = 0;  // for `tenon info`: one line
  virtual const BackendLimits& limits() const = 0;
  virtual BackendMemory memory() const = 0;
  // memory().total_bytes, without asking what is free.
  virtual std::uint64_t total_bytes() const { return memory().total_bytes; }
  // The driver whose memory this hands out: another one where this stands before that.
  virtual const Backend& source() const { return *this; }

  // --- Segments: address and memory together.
  // Sizes are rounded up to the driver's own granularity; the segment says what it became.
  virtual std::optional<Segment> allocate_segment(std::uint64_t size_bytes,
                                                  MemoryKind kind = MemoryKind::kDevice) = 0;
  // Waits for all work in flight on the device, as cudaFree does.
  virtual void free_segment(const Segment& segment) = 0;

  // --- Virtual memory: address and memory apart. All sizes and addresses are multiples of
  // limits().page_granularity.
  // Addresses without memory; nothing where there are none. The size is a multiple of the page
  // granularity.
  virtual std::optional<AddressRange> reserve_address(std::uint64_t size_bytes) = 0;
  // Requires: nothing is mapped in the range any more.
  virtual void release_address(AddressRange range) = 0;
  // Physical memory without an address; nothing where there is none.
  virtual std::optional<PageHandle> create_pages(std::uint64_t size_bytes) = 0;
  // The memory goes back to the system once its last mapping is gone, as in CUDA.
  virtual void release_pages(PageHandle pages) = 0;
  // Maps the whole handle. Nothing may touch the address before set_access. False: out of memory.
  virtual bool map(std::uintptr_t address, PageHandle pages) = 0;
  // Makes freshly mapped handles from `address` on readable and writable. False: out of memory; the
  // mapping stays and must be unmapped.
  virtual bool set_access(std::uintptr_t address, std::uint64_t size_bytes) = 0;
  // Unmaps one whole handle. Does not wait for any stream: the caller must know that nothing
  // queued still uses the address (the stream rule).
  virtual void unmap(std::uintptr_t address, PageHandle pages) = 0;

  // --- Between processes. A token is a file descriptor or what the driver has in its place.
  // Throw DeviceError where limits().can_export is false. Who closes a token is the backend's to
  // say.
  virtual std::int64_t export_pages(PageHandle pages);
  virtual PageHandle import_pages(std::int64_t token, std::uint64_t size_bytes);

  // --- Idle memory. A backend that gives nothing back by itself does nothing here.
  // The contents of this part of a segment are not needed any more. Whole pages inside it may go
  // back to the system until they are touched again. A hint.
  virtual void purge(void*, std::uint64_t) {}
  // Gives back what the backend itself keeps for reuse. Returns how much that was.
  virtual std::uint64_t trim() { return 0; }
  // The same with what has been kept for limits().idle_ns. Returns whether something is still kept.
  virtual bool release_idle() { return false; }
  // Around fork(2), so that the child finds the backend whole.
  virtual void before_fork() {}
  virtual void after_fork() {}

  // --- Contents, in stream order.
  // Bytes copied or set in the order of the stream. Both ranges must be accessible.
  virtual void copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) = 0;
  virtual void fill(void* dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream) = 0;

  // --- Streams and events.
  // A stream is destroyed when its owner needs it no more; its queued work still ends. Its number
  // may be given to a new stream, whose work then runs after it: allocators keep what they have for
  // a number. An event is a point in a stream, after all that is queued by then.
  virtual Stream create_stream() = 0;
  virtual void destroy_stream(Stream stream) = 0;
  virtual Event record(Stream stream) = 0;
  virtual bool query(Event event) = 0;             // true: everything before it has finished
  virtual void wait(Event event) = 0;              // the host waits
  virtual void stream_wait(Stream stream, Event event) = 0;
  virtual void destroy_event(Event event) = 0;
  virtual void synchronize(Stream stream) = 0;     // the host waits for all work of the stream
  virtual void synchronize() = 0;                  // ... of the device

  // --- Accounts.
  // Calls and stalls so far.
  virtual DriverLedger ledger() const = 0;
  // What the next driver calls are for, until changed. Set by MovingScope, under the lock of the
  // allocator that calls.
  virtual void set_purpose(DriverPurpose) {}
};

// Makes a driver call of a destructor, which cannot report an error. What the driver refuses to
// take stays with it, and the rest still goes.
template <typename Call>
void ignore_refusal(Call&& call) {
  try {
    call();
  } catch (const DeviceError&) {
  }
}

// Driver calls within the scope count as moving pages.
class MovingScope {
 public:
  explicit MovingScope(Backend& backend) : backend_(backend) {
    backend_.set_purpose(DriverPurpose::kMoving);
  }
  ~MovingScope() { backend_.set_purpose(DriverPurpose::kGrowth); }
  MovingScope(const MovingScope&) = delete;
  MovingScope& operator=(const MovingScope&) = delete;

 private:
  Backend& backend_;
};

}  // namespace tenon
