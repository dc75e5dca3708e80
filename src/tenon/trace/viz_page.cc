#include "tenon/trace/viz_page.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "tenon/base/error.h"

namespace tenon {
namespace {

constexpr std::size_t kHeadBytes = 4096;
constexpr std::string_view kScript = "MemoryViz.js";
constexpr std::string_view kField = "\"base64\": \"";
constexpr std::uint8_t kNoDigit = 64;

constexpr std::array<std::uint8_t, 256> kDigits = [] {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::uint8_t, 256> digits{};
  digits.fill(kNoDigit);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    digits[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  return digits;
}();

}  // namespace

bool looks_like_viz_page(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, kHeadBytes);
  return head.find(kScript) != head.npos && head.find(kField) != head.npos;
}

std::string pickle_of_page(std::string_view bytes, const std::string& name) {
  const std::size_t begin = bytes.find(kField) + kField.size();
  std::string pickle;
  pickle.reserve((bytes.size() - begin) / 4 * 3);
  std::uint32_t bits = 0;
  int count = 0;  // of bits that are not yet a byte
  for (std::size_t at = begin; at < bytes.size(); ++at) {
    const char c = bytes[at];
    if (c == '"' || c == '=') return pickle;
    const std::uint8_t digit = kDigits[static_cast<unsigned char>(c)];
    if (digit == kNoDigit)
      throw ParseError(name, 0, 0, fmt::format("is a page of torch.cuda._memory_viz whose snapshot "
                                               "has no base64 at byte {}", at));
    bits = bits << 6 | digit;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    pickle += static_cast<char>(bits >> count & 0xFF);
  }
  throw ParseError(name, 0, 0,
                   fmt::format("is a page of torch.cuda._memory_viz that was cut off at byte {}: "
                               "give the snapshot that it was made from, or make it again",
                               bytes.size()));
}

}  // namespace tenon
