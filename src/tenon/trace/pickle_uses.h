// Which entries of a pickle's memo are ever asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace tenon {

// How often readers of a pickle report where they are.
inline constexpr std::size_t kPickleReportBytes = std::size_t{4} << 20;

// Picklers number every container and string, and refer back to few of them. One quick pass over
// the opcodes finds those, so that a reader keeps these alone: a bit for each number, and a place
// among those that are used. Whatever stops the pass stops the reader too, with a message; so it
// says nothing itself. O(bytes); memory at most 1/8 of the file's size and half of that again.
class PickleUses {
 public:
  // `passed` is called now and then with an offset before which everything was looked at.
  explicit PickleUses(std::string_view bytes,
                      const std::function<void(std::size_t)>& passed = {});

  bool contains(std::uint64_t number) const {
    return number / 64 < bits_.size() && (bits_[number / 64] >> (number % 64) & 1) != 0;
  }
  // Numbers used below this one. Requires: contains(number).
  std::size_t place(std::uint64_t number) const {
    const std::uint64_t below = (std::uint64_t{1} << (number % 64)) - 1;
    return before_[number / 64] + ones(bits_[number / 64] & below);
  }
  std::size_t count() const { return count_; }

 private:
  void use(std::uint64_t number, std::size_t limit);
  // By halves; std::popcount is a call where the machine need not have the instruction.
  static std::uint64_t ones(std::uint64_t word) {
    word -= word >> 1 & 0x5555555555555555ULL;
    word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
    return (word * 0x0101010101010101ULL) >> 56;
  }

  std::vector<std::uint64_t> bits_;
  std::vector<std::uint32_t> before_;  // used numbers before each word
  std::size_t count_ = 0;
};

}  // namespace tenon
