// Hashes that are the same on every machine and in every run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tenon {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

// An order-dependent running hash of numbers.
class RunningHash {
 public:
  void add(std::uint64_t value) { state_ = mix64(state_ + 0x9e3779b97f4a7c15ULL + mix64(value)); }
  // Eight bytes at a time, the last word padded with zeros. Where lengths differ, add them, too.
  void add_bytes(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min(sizeof(word), bytes.size() - at));
      add(word);
    }
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

// Of a short text, byte by byte.
inline std::uint64_t hash_of_text(std::string_view text) {
  RunningHash hash;
  for (const char c : text) hash.add(static_cast<unsigned char>(c));
  return hash.value();
}

}  // namespace tenon
