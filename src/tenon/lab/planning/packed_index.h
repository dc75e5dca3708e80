// Which placed blocks live at some time, by offset: what the planner asks at every step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tenon {

// A block that has its place: [offset, top) in memory and [begin, end) in time.
struct PackedBlock {
  std::uint64_t offset = 0;
  std::uint64_t top = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

// Placed blocks in windows of time, each window a list by offset. Windows come in levels, each four
// times as wide as the one before, and overlap by half, so that any life fits wholly into one
// window of a level at most eight times its length: one list has all that can be in its way.
class PackedIndex {
 public:
  explicit PackedIndex(std::uint32_t duration) {
    for (std::uint64_t width = kNarrowest;; width *= 4) {
      const std::uint64_t stride = width / 2;
      levels_.push_back({stride, std::vector<Window>(duration / stride + 1)});
      if (stride >= duration) break;
    }
  }

  // The lowest offset at which `size` bytes are free in all of [begin, end).
  std::uint64_t lowest_fit(std::uint64_t size, std::uint32_t begin, std::uint32_t end) const {
    const Level* level = levels_.data();
    while (level->stride < end - begin) ++level;
    std::uint64_t low = 0;
    for (const PackedBlock& block : level->windows[begin / level->stride]) {
      if (block.end <= begin || end <= block.begin) continue;
      if (block.offset >= low + size) break;
      low = std::max(low, block.top);
    }
    return low;
  }

  void insert(const PackedBlock& block) {
    for (Level& level : levels_) {
      // Window k covers [k, k + 2) strides.
      const std::uint64_t first = block.begin / level.stride;
      const std::uint64_t last = (block.end - 1) / level.stride;
      for (std::uint64_t k = first == 0 ? 0 : first - 1; k <= last; ++k) {
        Window& window = level.windows[k];
        const auto at = std::upper_bound(
            window.begin(), window.end(), block.offset,
            [](std::uint64_t offset, const PackedBlock& b) { return offset < b.offset; });
        window.insert(at, block);
      }
    }
  }

 private:
  static constexpr std::uint64_t kNarrowest = 1024;
  using Window = std::vector<PackedBlock>;
  struct Level {
    std::uint64_t stride;
    std::vector<Window> windows;
  };
  std::vector<Level> levels_;
};

}  // namespace tenon
