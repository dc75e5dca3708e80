// Copies of so few bytes that a call of memcpy would take longer.
#pragma once

#include <cstddef>
#include <cstring>

namespace tenon::detail {

// Items as bytes: how many, not what they are.
template <std::size_t kBytes>
struct Item {
  unsigned char bytes[kBytes];
};

// By pieces from both ends, which may overlap.
template <std::size_t kPiece>
[[gnu::always_inline]] inline void copy_ends(char* to, const char* from, std::size_t bytes) {
  Item<kPiece> first, last;
  std::memcpy(&first, from, kPiece);
  std::memcpy(&last, from + bytes - kPiece, kPiece);
  std::memcpy(to, &first, kPiece);
  std::memcpy(to + bytes - kPiece, &last, kPiece);
}
// As memcpy, which it calls for many bytes.
[[gnu::always_inline]] inline void copy_bytes(char* to, const char* from, std::size_t bytes) {
  constexpr std::size_t kFew = 256, kPiece = 16;
  if (bytes > kFew || bytes < 4) {
    std::memcpy(to, from, bytes);
  } else if (bytes >= kPiece) {
    for (std::size_t at = kPiece; at < bytes; at += kPiece)
      std::memcpy(to + at - kPiece, from + at - kPiece, kPiece);
    std::memcpy(to + bytes - kPiece, from + bytes - kPiece, kPiece);
  } else {
    bytes >= 8 ? copy_ends<8>(to, from, bytes) : copy_ends<4>(to, from, bytes);
  }
}

}  // namespace tenon::detail
