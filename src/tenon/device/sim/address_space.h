// A simulated device's memory: segments, address ranges, pages, and what is mapped where.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tenon/device/backend.h"
#include "tenon/device/sim/sim_options.h"

namespace tenon {

// What is mapped where, and how many physical bytes that takes. It knows no time and no streams.
//
// Fake addresses: every new region lies right below the former one, and none is used twice. Real
// addresses come from the system. Physical bytes are those of segments and of created pages; a
// handle counts once however often it is mapped. Lookups are O(log n) in regions or mappings.
// Misuse throws DeviceError and lack of memory is a value; either way nothing has changed.
// Not thread-safe.
class SimAddressSpace {
 public:
  explicit SimAddressSpace(const SimOptions& options);
  ~SimAddressSpace();
  SimAddressSpace(const SimAddressSpace&) = delete;
  SimAddressSpace& operator=(const SimAddressSpace&) = delete;

  std::optional<Segment> allocate_segment(std::uint64_t size_bytes, MemoryKind kind);
  // Throws unless exactly this segment is held.
  void require_segment(const Segment& segment) const;
  void free_segment(const Segment& segment);

  std::optional<AddressRange> reserve_address(std::uint64_t size_bytes);
  void release_address(AddressRange range);
  std::optional<PageHandle> create_pages(std::uint64_t size_bytes);
  void release_pages(PageHandle pages);
  bool map(std::uintptr_t address, PageHandle pages);
  // The sizes of the handles in the range; throws unless whole handles cover it without a hole.
  std::vector<std::uint64_t> handles_in(std::uintptr_t address, std::uint64_t size_bytes) const;
  bool set_access(std::uintptr_t address, std::uint64_t size_bytes);
  void require_mapped(std::uintptr_t address, PageHandle pages) const;
  void unmap(std::uintptr_t address, PageHandle pages);

  // Throws, naming `call`, unless every byte may be read and written; true when the range is the
  // device's, false when it is none of its addresses (the host's own memory).
  bool require_accessible(const char* call, const void* address, std::uint64_t size_bytes) const;

  std::uint64_t used_bytes() const { return used_bytes_; }
  std::uint64_t peak_used_bytes() const { return peak_used_bytes_; }
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  void reset_peak() { peak_used_bytes_ = used_bytes_; }
  void set_capacity(std::uint64_t capacity_bytes) { capacity_bytes_ = capacity_bytes; }

 private:
  struct Region {                // a segment or an address range
    std::uint64_t size_bytes;
    std::uint64_t segment = 0;   // the segment's handle; 0: an address range
  };
  struct Pages {
    std::uint64_t size_bytes;
    std::uint64_t mappings = 0;
    bool released = false;       // by release_pages; gone with the last mapping
    std::uint64_t file_offset = 0;
  };
  struct Mapping {
    PageHandle pages;
    bool accessible = false;
  };
  using Regions = std::map<std::uintptr_t, Region>;
  using Mappings = std::map<std::uintptr_t, Mapping>;

  bool fits(std::uint64_t size_bytes) const;
  void take(std::uint64_t size_bytes);
  std::optional<std::uintptr_t> new_address(std::uint64_t size_bytes, std::uint64_t alignment,
                                            bool with_memory);
  bool open_file();
  void drop_if_unused(std::uint64_t pages_id);
  Regions::const_iterator region_of(std::uintptr_t address) const;
  Mappings::const_iterator mapping_of(std::uintptr_t address) const;
  const Pages& require_pages(const std::string& call, PageHandle pages) const;
  void require_granular(const std::string& call, std::uint64_t value, const char* what) const;

  SimOptions options_;
  std::uint64_t capacity_bytes_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t peak_used_bytes_ = 0;
  std::uintptr_t lowest_address_;     // fake addresses are handed out below
  std::uint64_t next_id_ = 1;         // of segments and pages
  Regions regions_;                   // by base
  Mappings mappings_;                 // by address
  std::unordered_map<std::uint64_t, Pages> pages_;
  int file_ = -1;                     // the pages' real memory: one file that is mostly holes
  std::uint64_t file_end_ = 0;        // each new handle lies behind all former ones
};

}  // namespace tenon
