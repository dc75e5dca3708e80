// A set of small numbers that knows each number's neighbours.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon {

// A subset of 0 ... size - 1. One bit for each number, and over every 64 words one that says which
// of them are not zero, up to a single word: 3 levels for 262,144 numbers.
//
//   level 1:             0 1 1 0 ...             one bit for each word of level 0
//   level 0:  0000...  0010...  1001...  0000...
//
// insert, erase, at_most, above: one or two words a level. Not thread-safe.
class OrderedBits {
 public:
  static constexpr std::size_t kNone = ~std::size_t{0};

  explicit OrderedBits(std::size_t size = 0) {
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size);
    } while (size > 1);
  }

  bool contains(std::size_t i) const { return (levels_[0][i >> 6] >> (i & 63)) & 1; }
  void insert(std::size_t i) {
    for (Level& level : levels_) {
      std::uint64_t& word = level[i >> 6];
      const bool was_empty = word == 0;
      word |= std::uint64_t{1} << (i & 63);
      if (!was_empty) return;
      i >>= 6;
    }
  }
  void erase(std::size_t i) {
    for (Level& level : levels_) {
      std::uint64_t& word = level[i >> 6];
      word &= ~(std::uint64_t{1} << (i & 63));
      if (word != 0) return;
      i >>= 6;
    }
  }

  // The highest member that is at most i; kNone where there is none.
  std::size_t at_most(std::size_t i) const {
    for (std::size_t l = 0; l < levels_.size(); ++l) {
      const std::uint64_t word = levels_[l][i >> 6] & (~std::uint64_t{0} >> (63 - (i & 63)));
      if (word != 0) return descend<&highest>(l, (i & ~std::size_t{63}) + highest(word));
      if (i < 64) return kNone;
      i = (i >> 6) - 1;  // the words before this one
    }
    return kNone;
  }
  // The lowest member above i; kNone where there is none.
  std::size_t above(std::size_t i) const {
    for (std::size_t l = 0; l < levels_.size(); ++l) {
      ++i;
      if (i >> 6 >= levels_[l].size()) return kNone;
      const std::uint64_t word = levels_[l][i >> 6] & (~std::uint64_t{0} << (i & 63));
      if (word != 0) return descend<&lowest>(l, (i & ~std::size_t{63}) + lowest(word));
      i >>= 6;
    }
    return kNone;
  }

 private:
  using Level = std::vector<std::uint64_t>;

  static std::size_t highest(std::uint64_t word) {
    return static_cast<std::size_t>(63 - std::countl_zero(word));
  }
  static std::size_t lowest(std::uint64_t word) {
    return static_cast<std::size_t>(std::countr_zero(word));
  }
  template <std::size_t (*pick)(std::uint64_t)>
  std::size_t descend(std::size_t level, std::size_t i) const {
    while (level-- > 0) i = (i << 6) + pick(levels_[level][i]);
    return i;
  }

  std::vector<Level> levels_;  // the numbers themselves first
};

}  // namespace tenon
