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
  std::optional<std::string_view> as_string() const {
    if (kind_ != Kind::kString) return std::nullopt;
    return std::string_view(text_, bits_);
  }
  // Integers (and bools) that fit.
  std::optional<std::int64_t> as_int64() const;
  std::optional<std::uint64_t> as_uint64() const {
    if ((kind_ != Kind::kInteger && kind_ != Kind::kBool) || negative_) return std::nullopt;
    return bits_;
  }
  std::optional<double> as_double() const;
  // Requires: a container. Values that share one have the same number, and no others: unless it is
  // passing (see PickleSink), whose number is given to another when its item was handed over.
  std::uint64_t container() const { return bits_; }
  bool is_passing() const { return (bits_ & kPassing) != 0; }

 private:
  friend class PickleDocument;
  friend class PickleReader;

  static constexpr std::uint64_t kPassing = std::uint64_t{1} << 63;

  Kind kind_ = Kind::kNone;
  bool negative_ = false;      // integers: the 64 bits are a two's complement negative
  union {
    std::uint64_t bits_ =
        0;  // integers and bools; containers: number in the document; text: length
    double real_;
  };
  const char* text_ = nullptr; // kString and kBytes: in the file's bytes
};

class PickleDocument;

// Takes the items of long lists as they are read, so that they need not all be held. The lists are
// those at root[key] and at root[key][index]. An item is handed over when it is appended to its
// list, complete; the list in the document stays empty. Containers of an item are gone when item()
// returns, but for those that the file refers to again.
class PickleSink {
 public:
  virtual ~PickleSink() = default;
  // Whether to hand over the items of the list that begins here. No index: root[key] itself.
  virtual bool wants(std::string_view key, std::optional<std::size_t> index) = 0;
  // An item of the list that was wanted last.
  virtual void item(const PickleDocument& document, const PickleValue& value) = 0;
  // Now and then: everything before this offset was looked at, the first time to learn what the
  // file refers to, the second time to read it.
  virtual void passed(std::size_t /*offset*/, bool /*first_time*/) {}
};

// With its article: "an int".
std::string_view pickle_kind_name(PickleValue::Kind kind);

// A pickle as plain data: None, booleans, integers, floats, strings, bytes, lists, tuples, sets and
// dicts, of protocols 2 to 5. Whatever would import, call or build a Python object (GLOBAL, REDUCE,
// BUILD, persistent ids, extension codes, ...) is refused: nothing in a file is ever executed.
//
// The document owns all containers flat, side by side, so that neither reading nor destroying it
// recurses, and values that the file shares (or makes contain themselves) are shared. Memory stays
// below read_limit_bytes of the file's size, whatever lengths the file claims.
// Throws ParseError with opcode and byte offset for everything that is not such a pickle.
class PickleDocument {
 public:
  using Pair = std::pair<PickleValue, PickleValue>;

  // `bytes` must outlive the document: strings stay where they are.
  // An exception of the sink ends the reading.
  PickleDocument(std::string_view bytes, std::string name, PickleSink* sink = nullptr);

  const PickleValue& root() const { return root_; }
  // Requires: the value is of this document, and a sequence, or a dict.
  std::span<const PickleValue> items(const PickleValue& sequence) const;
  std::span<const Pair> pairs(const PickleValue& dict) const;
  // The value of a key, or null: the last one given, as in Python. O(pairs).
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;

 private:
  friend class PickleReader;

  // Containers that stay, by number, and those of the items being read, whose places are used
  // again: `used` says how many are taken.
  template <typename Items>
  struct Pool {
    std::deque<Items> all;
    std::size_t used = 0;
  };

  PickleValue root_;
  std::deque<std::vector<PickleValue>> sequences_;
  std::deque<std::vector<Pair>> dicts_;
  Pool<std::vector<PickleValue>> passing_sequences_;
  Pool<std::vector<Pair>> passing_dicts_;
};

// True when the bytes start like a pickle of protocol 2 or later.
bool looks_like_pickle(std::string_view bytes);

}  // namespace tenon
