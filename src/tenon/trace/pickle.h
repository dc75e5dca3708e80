// Reads the part of Python's pickle format that is plain data, and nothing else.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon {

// One value: a scalar, a piece of the file's bytes, or the number of a container in its document.
// 24 bytes; copying shares containers, as a pickle's memo does.
class PickleValue {
 public:
  enum class Kind : std::uint8_t {
    kNone, kBool, kInteger, kBigInteger, kFloat, kString, kBytes, kList, kTuple, kSet, kDict
  };

  Kind kind() const { return kind_; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  // Lists, tuples and sets.
  bool is_sequence() const {
    return kind_ == Kind::kList || kind_ == Kind::kTuple || kind_ == Kind::kSet;
  }
  std::optional<std::string_view> as_string() const;
  // Integers (and bools) that fit.
  std::optional<std::int64_t> as_int64() const;
  std::optional<std::uint64_t> as_uint64() const;
  std::optional<double> as_double() const;
  // Requires: a container. Values that share one have the same number.
  std::uint64_t container() const { return bits_; }

 private:
  friend class PickleDocument;
  friend class PickleReader;

  Kind kind_ = Kind::kNone;
  bool negative_ = false;      // integers: the 64 bits are a two's complement negative
  union {
    std::uint64_t bits_ =
        0;  // integers and bools; containers: number in the document; text: length
    double real_;
  };
  const char* text_ = nullptr; // kString and kBytes: in the file's bytes
};

std::string_view pickle_kind_name(PickleValue::Kind kind);

// A pickle as plain data: None, booleans, integers, floats, strings, bytes, lists, tuples, sets and
// dicts, of protocols 2 to 5. Whatever would import, call or build a Python object (GLOBAL, REDUCE,
// BUILD, persistent ids, extension codes, ...) is refused: nothing in a file is ever executed.
//
// The document owns all containers flat, side by side, so that neither reading nor destroying it
// recurses, and values that the file shares (or makes contain themselves) are shared. Memory stays
// below a fixed multiple of the file's size, whatever lengths the file claims.
// Throws ParseError with opcode and byte offset for everything that is not such a pickle.
class PickleDocument {
 public:
  using Pair = std::pair<PickleValue, PickleValue>;

  // `bytes` must outlive the document: strings stay where they are.
  PickleDocument(std::string_view bytes, std::string name);

  const PickleValue& root() const { return root_; }
  // Requires: the value is of this document, and a sequence, or a dict.
  std::span<const PickleValue> items(const PickleValue& sequence) const;
  std::span<const Pair> pairs(const PickleValue& dict) const;
  // The value of a key, or null: the last one given, as in Python. O(pairs).
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;

 private:
  friend class PickleReader;

  PickleValue root_;
  std::deque<std::vector<PickleValue>> sequences_;
  std::deque<std::vector<Pair>> dicts_;
};

// True when the bytes start like a pickle of protocol 2 or later.
bool looks_like_pickle(std::string_view bytes);

}  // namespace tenon
