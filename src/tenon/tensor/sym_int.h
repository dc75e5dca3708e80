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

// A symbolic expression in normal form, so that equal ones look alike: a sum of products of atoms,
// or one atom. Atoms are symbols, and quotients and remainders that do not come out even.
struct SymNode : IntrusiveTarget {
  // What a node is.
  enum class Kind : std::uint8_t {
    kSymbol,
    kQuotient,   // of left by right, rounded down
    kRemainder,  // of that quotient
    kSum,        // of terms
  };
  // A number of times a product of atoms, which stand in the order of their texts; of none: 1.
  struct Term {
    std::int64_t factor = 0;
    std::vector<IntrusivePtr<SymNode>> atoms;
  };

  Kind kind = Kind::kSum;
  std::int64_t value = 0;  // of the whole expression, with every symbol at its hint
  std::string text;        // a symbol's name; else as it is printed
  IntrusivePtr<SymNode> left, right;
  std::vector<Term> terms;  // in the order in which they came up, the number alone last
};

// A plain 64-bit integer, or an expression such as batch * 512 + 12 whose symbols carry a hint: the
// value that shapes are computed with. Eight bytes; plain integers touch no heap. Plain integers
// are 63 bits wide (nothing that counts bytes is larger).
//
//   | plain integer, 63 bits, sign extended | 0 |     | address of a SymNode | 1 |
//
// Immutable values: thread-safe as int is. A number that does not fit 63 bits throws
// InvalidArgument, which names it, or the operation and its operands.
class SymInt {
 public:
  SymInt(std::int64_t value = 0) : SymInt(value, Fits{}) {
    if (hint() != value) [[unlikely]]
      refuse(value);
  }
  // Requires: 63 bits are enough, as they are for what an allocator may be asked for.
  static SymInt fitting(std::int64_t value) { return SymInt(value, Fits{}); }
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

  // A named size. Throws InvalidArgument for an empty name or a negative hint. Choose a hint that
  // no other size of the program has: reshape tells sizes apart by it. Sums and products of one
  // name with two hints throw InvalidArgument.
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
  // Whether both are the same expression, and so equal whatever their symbols. No guard.
  friend bool is_same(const SymInt& a, const SymInt& b);
  // The symbols and uneven quotients that it is a product of, with no number before them; empty for
  // anything else.
  friend std::vector<SymInt> atoms_of(const SymInt& value);
  // "batch * 512 + 12", "12".
  friend std::string to_string(const SymInt& value);

 private:
  struct Fits {};
  friend class SymSum;

  SymInt(std::int64_t value, Fits) : word_(static_cast<std::uint64_t>(value) << 1) {}
  explicit SymInt(IntrusivePtr<SymNode> node);
  SymNode* node() const { return reinterpret_cast<SymNode*>(word_ & ~std::uint64_t{1}); }
  [[noreturn]] static void refuse(std::int64_t value);
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

  // Whether each comparison that was recorded has the same outcome for these sizes. Operators and
  // views record what they rest on (Note [Labels of dimensions] in dim_labels.h). Of reshape and
  // expand it is taken that the sizes they are given follow the symbols: they record nothing where
  // a dimension stays.
  bool hold(const std::map<std::string, std::int64_t>& sizes) const;
  // "batch * 4 < 1024 is true".
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
