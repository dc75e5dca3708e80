// A simulated device's memory: what is where, how much there is, and real bytes if wanted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tenon/device/address_table.h"
#include "tenon/device/sim/sim_options.h"

namespace tenon {

// It knows no time and no streams.
//
// Fake addresses: every new region lies right below the former one. None is used twice before all
// 127 TiB were; then what was released is handed out again, from the top. Real addresses come from
// the system; real pages are parts of one file in memory. Physical bytes are those of segments and
// of created pages; a handle counts once however often it is mapped.
// Misuse throws DeviceError and lack of memory is a value; either way nothing has changed.
// Not thread-safe.
class SimAddressSpace {
 public:
  explicit SimAddressSpace(const SimOptions& options);
  ~SimAddressSpace();
  SimAddressSpace(const SimAddressSpace&) = delete;
  SimAddressSpace& operator=(const SimAddressSpace&) = delete;

  std::optional<Segment> allocate_segment(std::uint64_t size_bytes, MemoryKind kind);
  void require_segment(const Segment& segment) const { table_.require_segment(segment); }
  void free_segment(const Segment& segment);

  std::optional<AddressRange> reserve_address(std::uint64_t size_bytes);
  void release_address(AddressRange range);
  std::optional<PageHandle> create_pages(std::uint64_t size_bytes);
  void release_pages(PageHandle pages);
  bool map(std::uintptr_t address, PageHandle pages);
  // The sizes of the handles that it made accessible; nothing: out of memory.
  std::optional<std::vector<std::uint64_t>> set_access(std::uintptr_t address,
                                                       std::uint64_t size_bytes);
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
  bool fits(std::uint64_t size_bytes) const;
  void take(std::uint64_t size_bytes);
  void give_back(const std::optional<AddressTable::Dropped>& dropped);
  std::optional<std::uintptr_t> new_address(std::uint64_t size_bytes, std::uint64_t alignment,
                                            bool with_memory);
  bool open_file();

  SimOptions options_;
  AddressTable table_;
  std::uint64_t capacity_bytes_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t peak_used_bytes_ = 0;
  std::uintptr_t next_below_;      // fake addresses are handed out below
  std::uintptr_t lowest_address_;  // ever handed out
  int file_ = -1;                  // the pages' real memory: one file that is mostly holes
  std::uint64_t file_end_ = 0;     // each new handle lies behind all former ones
};

}  // namespace tenon
