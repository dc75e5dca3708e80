// What a backend without a driver of its own must know: which addresses hold what.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tenon/device/backend.h"

namespace tenon {

// The books on segments, address ranges, page handles and mappings. It touches no memory: its
// owner asks whether a call is right (require_...), does the system's work, and then enters it.
// Wrong use throws DeviceError with the call, its arguments and the reason, and changes nothing.
// O(log n) in regions or mappings. Not thread-safe.
class AddressTable {
 public:
  // A handle whose last mapping is gone after its release: what its owner must give back.
  struct Dropped {
    std::uint64_t size_bytes;
    std::uint64_t backing;
  };

  AddressTable(std::uint64_t page_granularity, bool can_map_twice)
      : page_granularity_(page_granularity), can_map_twice_(can_map_twice) {}

  // --- Segments. Handles of segments and pages come from one counter and are never used twice.
  void require_segment_size(std::uint64_t size_bytes) const;
  std::uint64_t add_segment(std::uintptr_t base, std::uint64_t size_bytes);
  void require_segment(const Segment& segment) const;
  void remove_segment(const Segment& segment);

  // --- Address ranges.
  void require_range_size(std::uint64_t size_bytes) const;
  void add_range(AddressRange range);
  void require_empty_range(AddressRange range) const;
  void remove_range(AddressRange range);

  // --- Pages. `backing` is the owner's: where the memory is.
  void require_pages_size(std::uint64_t size_bytes) const;
  PageHandle add_pages(std::uint64_t size_bytes, std::uint64_t backing);
  std::uint64_t backing(const char* call, PageHandle pages) const;  // throws when unknown
  std::optional<Dropped> release_pages(PageHandle pages);

  // --- Mappings.
  void require_can_map(std::uintptr_t address, PageHandle pages) const;
  void add_mapping(std::uintptr_t address, PageHandle pages);
  // The sizes of the handles in the range; throws unless whole handles cover it without a hole.
  std::vector<std::uint64_t> handles_in(std::uintptr_t address, std::uint64_t size_bytes) const;
  void set_accessible(std::uintptr_t address, std::uint64_t size_bytes);
  void require_mapped(std::uintptr_t address, PageHandle pages) const;
  std::optional<Dropped> remove_mapping(std::uintptr_t address);

  // Throws, naming `call`, when the bytes begin in a segment or range but not all of them may be
  // read and written. False: they begin in neither.
  bool require_accessible(const char* call, const void* address, std::uint64_t size_bytes) const;

  // The highest aligned address below `end` with so many bytes behind it that are of no segment or
  // range, and end there at most. O(regions) where regions lie below `end`.
  std::optional<std::uintptr_t> free_below(std::uintptr_t end, std::uint64_t size_bytes,
                                           std::uint64_t alignment) const;

  // Visits what is left: for a destructor.
  template <typename Visit>
  void for_each_region(Visit&& visit) const {
    for (const auto& [base, region] : regions_) visit(base, region.size_bytes);
  }
  // visit(backing) for each handle that still has memory.
  template <typename Visit>
  void for_each_pages(Visit&& visit) const {
    for (const auto& [id, pages] : pages_) visit(pages.backing);
  }
  // visit(Segment) for each segment: for drivers that free segments and ranges by different calls.
  template <typename Visit>
  void for_each_segment(Visit&& visit) const {
    for (const auto& [base, region] : regions_)
      if (region.segment != 0) {
        Segment segment;
        segment.base = reinterpret_cast<void*>(base);
        segment.size_bytes = region.size_bytes;
        segment.handle = region.segment;
        visit(segment);
      }
  }
  // visit(AddressRange) for each range.
  template <typename Visit>
  void for_each_range(Visit&& visit) const {
    for (const auto& [base, region] : regions_)
      if (region.segment == 0) visit(AddressRange{base, region.size_bytes});
  }
  // visit(backing) for each handle that release_pages has not given back.
  template <typename Visit>
  void for_each_unreleased(Visit&& visit) const {
    for (const auto& [id, pages] : pages_)
      if (!pages.released) visit(pages.backing);
  }
  // visit(address, PageHandle) for each mapping; below, for each that set_access made accessible.
  template <typename Visit>
  void for_each_mapping(Visit&& visit) const {
    for (const auto& [address, mapping] : mappings_) visit(address, mapping.pages);
  }
  // As for_each_mapping.
  template <typename Visit>
  void for_each_accessible_mapping(Visit&& visit) const {
    for (const auto& [address, mapping] : mappings_)
      if (mapping.accessible) visit(address, mapping.pages);
  }

 private:
  struct Region {               // a segment or an address range
    std::uint64_t size_bytes;
    std::uint64_t segment = 0;  // the segment's handle; 0: an address range
  };
  struct Pages {
    std::uint64_t size_bytes;
    std::uint64_t backing;
    std::uint64_t mappings = 0;
    bool released = false;      // by release_pages; gone with the last mapping
  };
  struct Mapping {
    PageHandle pages;
    bool accessible = false;
  };
  using Regions = std::map<std::uintptr_t, Region>;
  using Mappings = std::map<std::uintptr_t, Mapping>;

  Regions::const_iterator region_of(std::uintptr_t address) const;
  Mappings::const_iterator mapping_of(std::uintptr_t address) const;
  template <typename Call>
  const Pages& require_pages(const Call& call, PageHandle pages) const;
  template <typename Call>
  void require_granular(const Call& call, std::uint64_t size_bytes) const;
  std::optional<Dropped> drop_if_unused(std::uint64_t pages_id);

  std::uint64_t page_granularity_;
  bool can_map_twice_;
  std::uint64_t next_id_ = 1;
  Regions regions_;     // by base
  Mappings mappings_;   // by address
  std::unordered_map<std::uint64_t, Pages> pages_;
};

}  // namespace tenon
