// Where a policy's memory is drawn: its addresses, moved together.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/lab/view/watching_backend.h"

namespace tenon {

// A simulated device never uses an address twice, so after a while its addresses are mostly holes.
// Each region (a segment, or mapped pages that touch each other at any time) gets a place among
// those alive with it, by best fit, and keeps it for life: what is drawn stays where it is, and
// the drawing is hardly larger than the most memory held.
// Building costs O(changes log changes).
class DisplaySpace {
 public:
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

  explicit DisplaySpace(const std::vector<BackingChange>& changes);

  // The display offset of an address, kNowhere for one that never had memory. O(log regions).
  std::uint64_t offset_of(std::uint64_t address) const;
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  struct Region {
    std::uint64_t address = 0;
    std::uint64_t size_bytes = 0;
    std::uint32_t born = 0;  // index of the first change
    std::uint32_t dies = 0;  // index of the last change that ends it; kImmortal
    std::uint64_t offset = 0;
  };
  static constexpr std::uint32_t kImmortal = ~std::uint32_t{0};

  void join_touching(const std::vector<BackingChange>& changes);
  void find_lives(const std::vector<BackingChange>& changes);
  void place_all();
  std::size_t region_of(std::uint64_t address) const;

  std::vector<Region> regions_;  // by address
  std::uint64_t size_bytes_ = 0;
};

}  // namespace tenon
