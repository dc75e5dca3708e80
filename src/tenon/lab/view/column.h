// Numbers packed for the viewer. docs/view.md has the format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

// A named list of numbers, or a text, in pieces that are decoded one after the other.
struct Column {
  std::string name;
  std::string type;   // "u8", "u16", "u32", "u64", or "text": bytes of UTF-8
  bool delta = false;  // each number is what is added to the one before; the first to 0
  std::uint64_t count = 0;  // numbers, or bytes
  std::vector<std::string> pieces;  // each of kPieceNumbers numbers but the last: raw deflate
};

inline constexpr std::uint64_t kPieceNumbers = std::uint64_t{1} << 18;

// Packs `count` numbers: the smallest type that holds them all (their differences, with delta),
// each piece as planes (all lowest bytes, then all second bytes, ...), deflated.
// With delta, numbers must not fall. `number` is asked twice for each index, in order.
Column pack_numbers(std::string name, std::uint64_t count, bool delta,
                    const std::function<std::uint64_t(std::uint64_t)>& number);

Column pack_text(std::string name, std::string_view text);

std::string base64(std::string_view bytes);

}  // namespace tenon
