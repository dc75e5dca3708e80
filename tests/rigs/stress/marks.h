// What a block's owner writes into it, so that anybody else's write is seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "tenon/base/hash.h"

namespace tenon {

// Words at the block's beginning and end, at two places drawn from its number, and at up to 16
// addresses that are multiples of a power of two: two blocks that overlap by a few pages share such
// an address, whoever they are. Blocks of up to 256 bytes, and one of 256 of up to 64 KiB, are
// marked all over. A word depends on the block's number and its own address.
//
//   |w|......w....|....w...|......w.|........|w|      | : the multiples and both ends; w: drawn
class Marks {
 public:
  Marks(void* data, std::uint64_t size_bytes, std::uint64_t number)
      : begin_(reinterpret_cast<std::uintptr_t>(data)),
        end_(begin_ + size_bytes),
        number_(number) {}

  void write() const {
    visit([](std::uintptr_t at, std::uint64_t word, std::uint64_t length) {
      void* bytes = reinterpret_cast<void*>(at);
      length == kWord ? std::memcpy(bytes, &word, kWord) : std::memcpy(bytes, &word, length);
      return true;
    });
  }

  // The offset of the first word that is not as it was written.
  std::optional<std::uint64_t> find_damage() const {
    std::optional<std::uint64_t> damage;
    visit([&](std::uintptr_t at, std::uint64_t word, std::uint64_t length) {
      const void* bytes = reinterpret_cast<const void*>(at);
      // A length that the compiler knows needs no call.
      const bool whole = length == kWord && std::memcmp(bytes, &word, kWord) == 0;
      if (whole || std::memcmp(bytes, &word, length) == 0) return true;
      damage = at - begin_;
      return false;
    });
    return damage;
  }

 private:
  static constexpr std::uint64_t kWord = 8;
  static constexpr std::uint64_t kSmall = 256;
  static constexpr std::uint64_t kMostWhole = 64 << 10;
  static constexpr std::uint64_t kGrid = 4096;
  static constexpr std::uint64_t kMostOnGrid = 16;

  std::uint64_t word_at(std::uintptr_t at) const {
    return (number_ ^ at) * 0x9e3779b97f4a7c15ULL;
  }

  // see(address, word, length) for every mark, until it returns false.
  template <typename See>
  void visit(See&& see) const {
    const std::uint64_t size = end_ - begin_;
    const std::uint64_t dice = mix64(number_);
    if (size <= kSmall || (size <= kMostWhole && dice % 256 == 0)) {
      for (std::uintptr_t at = begin_; at < end_; at += kWord)
        if (!see(at, word_at(at), std::min(kWord, end_ - at))) return;
      return;
    }
    const std::uintptr_t last = end_ - kWord;
    if (!see(begin_, word_at(begin_), kWord) || !see(last, word_at(last), kWord)) return;
    // Between the two, without touching them.
    const std::uintptr_t from = (begin_ + 2 * kWord - 1) & ~(kWord - 1);
    const std::uint64_t words = (last - kWord - from) / kWord + 1;
    for (const std::uint64_t draw : {dice & 0xffffffff, dice >> 32}) {
      const std::uintptr_t at = from + (draw * words >> 32) * kWord;
      if (!see(at, word_at(at), kWord)) return;
    }
    std::uint64_t grid = kGrid;
    while (size / grid > kMostOnGrid) grid *= 2;
    for (std::uintptr_t at = (from + grid - 1) & ~(grid - 1); at + kWord <= last; at += grid)
      if (!see(at, word_at(at), kWord)) return;
  }

  std::uintptr_t begin_;
  std::uintptr_t end_;
  std::uint64_t number_;
};

}  // namespace tenon
