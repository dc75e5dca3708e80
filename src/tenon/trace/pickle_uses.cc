#include "tenon/trace/pickle_uses.h"

#include <array>

#include "tenon/trace/pickle_opcodes.h"

namespace tenon {
namespace {

std::uint64_t little_endian(const char* bytes, int width) {
  std::uint64_t value = 0;
  for (int i = width; i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(bytes[i]);
  return value;
}

// What follows an opcode: `fixed` bytes, then, with `counted`, as many more as those say.
struct Shape {
  std::uint8_t fixed = 0;
  bool counted = false;
};

constexpr Shape shape_of(std::uint8_t opcode) {
  switch (opcode) {
    case pickle::kBinInt: return {4};
    case pickle::kBinInt1: return {1};
    case pickle::kBinInt2: return {2};
    case pickle::kBinFloat: return {8};
    case pickle::kBinGet:
    case pickle::kBinPut:
    case pickle::kProto: return {1};
    case pickle::kLongBinGet:
    case pickle::kLongBinPut: return {4};
    case pickle::kFrame: return {8};
    case pickle::kLong1:
    case pickle::kShortBinString:
    case pickle::kShortBinUnicode:
    case pickle::kShortBinBytes: return {1, true};
    case pickle::kLong4:
    case pickle::kBinString:
    case pickle::kBinUnicode:
    case pickle::kBinBytes: return {4, true};
    case pickle::kBinUnicode8:
    case pickle::kBinBytes8:
    case pickle::kByteArray8: return {8, true};
    default: return {};
  }
}

constexpr std::array<Shape, 256> kShapes = [] {
  std::array<Shape, 256> shapes = {};
  for (std::size_t opcode = 0; opcode < shapes.size(); ++opcode)
    shapes[opcode] = shape_of(static_cast<std::uint8_t>(opcode));
  return shapes;
}();

}  // namespace

PickleUses::PickleUses(std::string_view bytes, const std::function<void(std::size_t)>& passed) {
  std::size_t at = 0;
  std::size_t next_report = kPickleReportBytes;
  while (at < bytes.size()) {
    if (at >= next_report && passed) {
      passed(at);
      next_report = at + kPickleReportBytes;
    }
    const auto opcode = static_cast<std::uint8_t>(bytes[at++]);
    if (opcode == pickle::kStop || opcode == 0) break;  // 0: none; a sparse file has terabytes
    const Shape shape = kShapes[opcode];
    if (shape.fixed == 0) continue;  // opcodes that are refused end the reader's pass, not this one
    const std::size_t fixed = shape.fixed;
    if (fixed > bytes.size() - at) break;
    const std::uint64_t number = little_endian(bytes.data() + at, shape.fixed);
    at += fixed;
    if (opcode == pickle::kBinGet || opcode == pickle::kLongBinGet) use(number, bytes.size());
    if (!shape.counted) continue;
    if (number > bytes.size() - at) break;
    at += number;
  }
  before_.reserve(bits_.size());
  for (const std::uint64_t word : bits_) {
    before_.push_back(static_cast<std::uint32_t>(count_));
    count_ += static_cast<std::size_t>(ones(word));
  }
}

// A pickler needs a byte or more for each number: larger ones are never set.
void PickleUses::use(std::uint64_t number, std::size_t limit) {
  if (number >= limit) return;
  if (number / 64 >= bits_.size()) bits_.resize(number / 64 + 1);
  bits_[number / 64] |= std::uint64_t{1} << (number % 64);
}

}  // namespace tenon
