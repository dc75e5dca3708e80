// The opcodes of Python's pickle format (Lib/pickletools.py lists and explains them).
#pragma once

#include <cstdint>
#include <string_view>

namespace tenon::pickle {

enum Opcode : std::uint8_t {
  kMark = '(', kStop = '.', kPop = '0', kPopMark = '1', kDup = '2',
  kNone = 'N', kNewTrue = 0x88, kNewFalse = 0x89,
  kBinInt = 'J', kBinInt1 = 'K', kBinInt2 = 'M', kLong1 = 0x8a, kLong4 = 0x8b, kBinFloat = 'G',
  kShortBinString = 'U', kBinString = 'T',
  kShortBinUnicode = 0x8c, kBinUnicode = 'X', kBinUnicode8 = 0x8d,
  kShortBinBytes = 'C', kBinBytes = 'B', kBinBytes8 = 0x8e, kByteArray8 = 0x96,
  kEmptyList = ']', kAppend = 'a', kAppends = 'e', kList = 'l',
  kEmptyTuple = ')', kTuple = 't', kTuple1 = 0x85, kTuple2 = 0x86, kTuple3 = 0x87,
  kEmptyDict = '}', kDict = 'd', kSetItem = 's', kSetItems = 'u',
  kEmptySet = 0x8f, kAddItems = 0x90, kFrozenSet = 0x91,
  kBinGet = 'h', kLongBinGet = 'j', kBinPut = 'q', kLongBinPut = 'r', kMemoize = 0x94,
  kProto = 0x80, kFrame = 0x95,
};

// Why a reader of plain data refuses an opcode: its name and what it would do. Empty name: no
// opcode that Python knows.
struct Refusal {
  std::string_view name;
  std::string_view reason;
};
Refusal refusal(std::uint8_t opcode);

}  // namespace tenon::pickle
