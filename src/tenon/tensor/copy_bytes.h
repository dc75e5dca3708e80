// Copies of bytes where memcpy is slow: of few, for its call, and of many that lie badly.
#pragma once

#include <cstddef>
#include <cstdint>
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
// glibc copies from some kilobytes on by `rep movsb`. Zen 3 and 4 take 14 times as long for that
// where the target lies up to 15 bytes behind the source within their pages of 4 KiB, as with a
// tensor that is padded by an element. Short calls use vectors.
inline void copy_many(char* to, const char* from, std::size_t bytes) {
  constexpr std::size_t kShort = 2048, kNear = 16, kPage = 4096;
  const std::size_t apart =
      (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kPage;
  if (apart - 1 < kNear - 1)
    for (; bytes > kShort; bytes -= kShort, to += kShort, from += kShort)
      std::memcpy(to, from, kShort);
  std::memcpy(to, from, bytes);
}
// As memcpy, which it calls for many bytes.
[[gnu::always_inline]] inline void copy_bytes(char* to, const char* from, std::size_t bytes) {
  constexpr std::size_t kFew = 256, kPiece = 16;
  if (bytes > kFew || bytes < 4) {
    copy_many(to, from, bytes);
  } else if (bytes >= kPiece) {
    for (std::size_t at = kPiece; at < bytes; at += kPiece)
      std::memcpy(to + at - kPiece, from + at - kPiece, kPiece);
    std::memcpy(to + bytes - kPiece, from + bytes - kPiece, kPiece);
  } else {
    bytes >= 8 ? copy_ends<8>(to, from, bytes) : copy_ends<4>(to, from, bytes);
  }
}

}  // namespace tenon::detail
