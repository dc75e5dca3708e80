#include "tenon/trace/pickle_opcodes.h"

namespace tenon::pickle {
namespace {
constexpr std::string_view kImports = "would import a Python object";
constexpr std::string_view kCalls = "would call Python code";
constexpr std::string_view kOutside = "refers to something outside the file";
constexpr std::string_view kText = "belongs to the text protocols 0 and 1, which are not read";
}  // namespace

Refusal refusal(std::uint8_t opcode) {
  switch (opcode) {
    case 'c': return {"GLOBAL", kImports};
    case 0x93: return {"STACK_GLOBAL", kImports};
    case 0x82: return {"EXT1", kImports};
    case 0x83: return {"EXT2", kImports};
    case 0x84: return {"EXT4", kImports};
    case 'R': return {"REDUCE", kCalls};
    case 'b': return {"BUILD", kCalls};
    case 'i': return {"INST", kCalls};
    case 'o': return {"OBJ", kCalls};
    case 0x81: return {"NEWOBJ", kCalls};
    case 0x92: return {"NEWOBJ_EX", kCalls};
    case 'P': return {"PERSID", kOutside};
    case 'Q': return {"BINPERSID", kOutside};
    case 0x97: return {"NEXT_BUFFER", kOutside};
    case 0x98: return {"READONLY_BUFFER", kOutside};
    case 'I': return {"INT", kText};
    case 'L': return {"LONG", kText};
    case 'F': return {"FLOAT", kText};
    case 'S': return {"STRING", kText};
    case 'V': return {"UNICODE", kText};
    case 'g': return {"GET", kText};
    case 'p': return {"PUT", kText};
    default: return {"", "is no pickle opcode"};
  }
}

}  // namespace tenon::pickle
