#include "tenon/trace/pickle_writer.h"

#include <bit>

#include "tenon/trace/pickle_opcodes.h"

namespace tenon {
namespace {
constexpr std::size_t kBatch = 1000;  // as Python's pickler does
constexpr std::size_t kMaxText = 255;
constexpr std::size_t kMaxTexts = 1 << 20;  // remembered
}  // namespace

PickleWriter::PickleWriter() {
  byte(pickle::kProto);
  byte(4);
}

void PickleWriter::bytes(std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) byte(value >> (8 * i) & 0xff);
}

void PickleWriter::number(std::uint64_t value) {
  if (value < 1 << 8) {
    byte(pickle::kBinInt1);
    bytes(value, 1);
  } else if (value < 1 << 16) {
    byte(pickle::kBinInt2);
    bytes(value, 2);
  } else if (value < std::uint64_t{1} << 31) {
    byte(pickle::kBinInt);
    bytes(value, 4);
  } else {
    // Two's complement: a byte more where the highest bit is set.
    const int width = (64 - std::countl_zero(value)) / 8 + 1;
    byte(pickle::kLong1);
    byte(static_cast<unsigned>(width));
    bytes(value, width < 8 ? width : 8);
    if (width > 8) byte(0);
  }
}

void PickleWriter::boolean(bool value) { byte(value ? pickle::kNewTrue : pickle::kNewFalse); }

void PickleWriter::real(double value) {
  byte(pickle::kBinFloat);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 8; i-- > 0;) byte(bits >> (8 * i) & 0xff);
}

void PickleWriter::get(std::uint32_t memo) {
  if (memo < 256) {
    byte(pickle::kBinGet);
    bytes(memo, 1);
  } else {
    byte(pickle::kLongBinGet);
    bytes(memo, 4);
  }
}

void PickleWriter::text(std::string_view value) {
  value = value.substr(0, kMaxText);
  const auto known = texts_.find(std::string(value));
  if (known != texts_.end()) return get(known->second);
  byte(pickle::kShortBinUnicode);
  byte(static_cast<unsigned>(value.size()));
  out_ += value;
  if (texts_.size() >= kMaxTexts) return;
  byte(pickle::kMemoize);
  texts_.emplace(value, memo_++);
}

void PickleWriter::begin_dict() {
  byte(pickle::kEmptyDict);
  byte(pickle::kMark);
}

void PickleWriter::end_dict() { byte(pickle::kSetItems); }

void PickleWriter::begin_list() {
  byte(pickle::kEmptyList);
  byte(pickle::kMark);
  items_.push_back(0);
}

void PickleWriter::next_item() {
  if (items_.back() == kBatch) {
    byte(pickle::kAppends);
    byte(pickle::kMark);
    items_.back() = 0;
  }
  ++items_.back();
}

void PickleWriter::end_list() {
  byte(pickle::kAppends);
  items_.pop_back();
}

void PickleWriter::pair_of_numbers(std::uint64_t first, std::uint64_t second) {
  number(first);
  number(second);
  byte(pickle::kTuple2);
}

bool PickleWriter::refer(std::uint64_t name) {
  const auto known = names_.find(name);
  if (known == names_.end()) return false;
  get(known->second);
  return true;
}

void PickleWriter::remember(std::uint64_t name) {
  byte(pickle::kMemoize);
  names_.emplace(name, memo_++);
}

std::string PickleWriter::finish() {
  byte(pickle::kStop);
  return std::move(out_);
}

}  // namespace tenon
