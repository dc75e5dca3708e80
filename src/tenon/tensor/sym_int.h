// An integer that may be an expression over named sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/base/intrusive_ptr.h"

namespace tenon {

// A node of an expression: a symbol, a constant, or an operation on two.
struct SymNode : IntrusiveTarget {
  // What a node is.
  enum class Kind : std::uint8_t {
    kSymbol,
    kConstant,
    kSum,
    kDifference,
    kProduct,
    kQuotient,   // rounded down
    kRemainder,  // of that quotient
  };

  Kind kind = Kind::kConstant;
  std::int64_t value = 0;  // of the whole expression, with every symbol at its hint
  std::string name;        // of a symbol
  IntrusivePtr<SymNode> left, right;
};

// A plain 64-bit integer, or an expression such as 4 * batch * 128 whose symbols carry a hint: the
// value that shapes are computed with. Eight bytes; plain integers touch no heap. Plain integers
// are 63 bits wide (nothing that counts bytes is larger).
//
//   | plain integer, 63 bits, sign extended | 0 |     | address of a SymNode | 1 |
//
// Immutable values: thread-safe as int is. Arithmetic on overflow throws InvalidArgument.
class SymInt {
 public:
  SymInt(std::int64_t value = 0) : word_(static_cast<std::uint64_t>(value) << 1) {}
  SymInt(const SymInt& other) : word_(other.word_) {
    if (is_symbolic()) [[unlikely]] retain();
  }
  SymInt(SymInt&& other) noexcept : word_(std::exchange(other.word_, 0)) {}
  // Values: copying is O(1).
  SymInt& operator=(SymInt other) noexcept {
    std::swap(word_, other.word_);
    return *this;
  }
  ~SymInt() {
    if (is_symbolic()) [[unlikely]]
      drop();
  }

  // A named size. Throws InvalidArgument for an empty name or a negative hint.
  static SymInt symbol(std::string_view name, std::int64_t hint);

  // Whether it is an expression.
  bool is_symbolic() const { return (word_ & 1) != 0; }
  // The integer, or the expression's value with every symbol at its hint.
  std::int64_t hint() const {
    return is_symbolic() ? node()->value : static_cast<std::int64_t>(word_) >> 1;
  }
  // The value with these sizes for the symbols. Throws InvalidArgument, naming the symbol, when one
  // is missing.
  std::int64_t evaluate(const std::map<std::string, std::int64_t>& sizes) const;

  friend SymInt operator+(const SymInt& a, const SymInt& b);
  friend SymInt operator-(const SymInt& a, const SymInt& b);
  friend SymInt operator*(const SymInt& a, const SymInt& b);
  // Rounded down. Throw InvalidArgument for a divisor whose hint is 0.
  friend SymInt operator/(const SymInt& a, const SymInt& b);
  friend SymInt operator%(const SymInt& a, const SymInt& b);
  // By the hints. Where a symbol decides, the thread's SymGuards learn of it.
  friend bool operator==(const SymInt& a, const SymInt& b);
  friend bool operator<(const SymInt& a, const SymInt& b);
  // "4 * batch * 128", "12".
  friend std::string to_string(const SymInt& value);

 private:
  explicit SymInt(IntrusivePtr<SymNode> node);
  SymNode* node() const { return reinterpret_cast<SymNode*>(word_ & ~std::uint64_t{1}); }
  IntrusivePtr<SymNode> as_node() const;
  static SymInt combine(SymNode::Kind kind, const SymInt& a, const SymInt& b);
  void retain() const;
  void drop();

  std::uint64_t word_;
};

// What a computation assumed of its symbols: every comparison of symbolic sizes on this thread
// while the object lives. Nests; the innermost learns.
class SymGuards {
 public:
  SymGuards();
  ~SymGuards();
  SymGuards(const SymGuards&) = delete;
  SymGuards& operator=(const SymGuards&) = delete;

  // Whether each comparison that was recorded has the same outcome for these sizes. Views, element-
  // wise operators, reductions and products record theirs. Of reshape and expand it is taken that
  // the sizes they are given follow the symbols: they record nothing where a dimension stays.
  bool hold(const std::map<std::string, std::int64_t>& sizes) const;
  // "4 * batch < 1024 is true".
  std::vector<std::string> to_strings() const;

 private:
  friend bool operator==(const SymInt& a, const SymInt& b);
  friend bool operator<(const SymInt& a, const SymInt& b);
  struct Guard {
    SymInt left, right;
    bool less = false;  // else: equal
    bool outcome = false;
  };
  static bool compare(const SymInt& a, const SymInt& b, bool less);

  std::vector<Guard> guards_;
  SymGuards* const outer_;
};

}  // namespace tenon
