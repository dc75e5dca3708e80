#include "tenon/tensor/sym_int.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "tenon/base/error.h"

namespace tenon {
namespace {

using Kind = SymNode::Kind;
using Term = SymNode::Term;

std::int64_t floored(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

// a `sign` b for plain integers.
std::int64_t compute(char sign, std::int64_t a, std::int64_t b) {
  std::int64_t value = 0;
  bool overflow = false;
  switch (sign) {
    case '+':
      overflow = __builtin_add_overflow(a, b, &value);
      break;
    case '-':
      overflow = __builtin_sub_overflow(a, b, &value);
      break;
    case '*':
      overflow = __builtin_mul_overflow(a, b, &value);
      break;
    default:
      if (b == 0) throw InvalidArgument(fmt::format("symbolic size: {} {} 0", a, sign));
      value = sign == '/' ? floored(a, b) : a - floored(a, b) * b;
  }
  if (overflow || value > (INT64_MAX >> 1) || value < (INT64_MIN >> 1))
    throw InvalidArgument(
        fmt::format("symbolic size: {} {} {} does not fit 63 bits", a, sign, b));
  return value;
}

std::int64_t evaluate_node(const SymNode& node, const std::map<std::string, std::int64_t>& sizes) {
  if (node.kind == Kind::kSymbol) {
    const auto it = sizes.find(node.text);
    if (it == sizes.end())
      throw InvalidArgument(fmt::format("symbolic size: no value given for \"{}\"", node.text));
    return it->second;
  }
  if (node.kind != Kind::kSum)
    return compute(node.kind == Kind::kQuotient ? '/' : '%', evaluate_node(*node.left, sizes),
                   evaluate_node(*node.right, sizes));
  std::int64_t sum = 0;
  for (const Term& term : node.terms) {
    std::int64_t product = term.factor;
    for (const auto& atom : term.atoms)
      product = compute('*', product, evaluate_node(*atom, sizes));
    sum = compute('+', sum, product);
  }
  return sum;
}

bool is_same_atom(const SymNode& a, const SymNode& b) {
  if (a.text != b.text) return false;
  if (a.value != b.value)
    throw InvalidArgument(fmt::format(
        "symbolic size \"{}\" has the value {} in one operand and {} in the other; give a symbol "
        "the same hint everywhere, or two sizes two names",
        a.text, a.value, b.value));
  return true;
}

bool has_same_atoms(const Term& a, const Term& b) {
  return std::ranges::equal(a.atoms, b.atoms,
                            [](const auto& x, const auto& y) { return is_same_atom(*x, *y); });
}

// "batch * width * 4", without the factor's sign.
std::string print_term(const Term& term) {
  const std::int64_t factor = std::abs(term.factor);
  std::string text;
  for (const auto& atom : term.atoms) text += (text.empty() ? "" : " * ") + atom->text;
  if (text.empty()) return fmt::format("{}", factor);
  return factor == 1 ? text : fmt::format("{} * {}", text, factor);
}

std::string print_terms(const std::vector<Term>& terms) {
  std::string text;
  for (const Term& term : terms) {
    const char* const sign = term.factor < 0 ? "-" : "+";
    text += text.empty() ? (term.factor < 0 ? "-" : "") : fmt::format(" {} ", sign);
    text += print_term(term);
  }
  return text;
}

constinit thread_local SymGuards* innermost_guards = nullptr;

}  // namespace

// A sum of terms while it is put together; becomes a plain integer where no symbol is left.
class SymSum {
 public:
  SymSum() = default;
  explicit SymSum(const SymInt& value) {
    if (!value.is_symbolic())
      add({value.hint(), {}});
    else if (value.node()->kind == Kind::kSum)
      terms_ = value.node()->terms;
    else
      add({1, {IntrusivePtr<SymNode>::retain_copy(value.node())}});
  }

  const std::vector<Term>& terms() const { return terms_; }
  bool empty() const { return terms_.empty(); }

  void add(const Term& term) {
    const auto same = std::ranges::find_if(
        terms_, [&](const Term& other) { return has_same_atoms(term, other); });
    if (same != terms_.end()) {
      same->factor = compute('+', same->factor, term.factor);
      if (same->factor == 0) terms_.erase(same);
    } else if (term.factor != 0) {
      const bool number_is_last = !terms_.empty() && terms_.back().atoms.empty();
      terms_.insert(terms_.end() - (number_is_last ? 1 : 0), term);
    }
  }

  // The expression, whose value at the hints is known.
  SymInt finish(std::int64_t value) && {
    if (terms_.empty() || (terms_.size() == 1 && terms_[0].atoms.empty())) return SymInt(value);
    if (terms_.size() == 1 && terms_[0].factor == 1 && terms_[0].atoms.size() == 1)
      return SymInt(terms_[0].atoms[0]);
    auto node = make_intrusive<SymNode>();
    node->value = value;
    node->text = print_terms(terms_);
    node->terms = std::move(terms_);
    return SymInt(std::move(node));
  }

  // What divides by one term, taken away: the quotient. The rest stays.
  SymSum take_multiples(const Term& divisor) {
    SymSum quotient;
    std::vector<Term> rest;
    for (const Term& term : terms_) {
      Term left = term;
      bool divides = divisor.factor != 0 && term.factor % divisor.factor == 0;
      for (const auto& atom : divisor.atoms) {
        const auto at = std::ranges::find_if(
            left.atoms, [&](const auto& other) { return other->text == atom->text; });
        divides = divides && at != left.atoms.end();
        if (!divides) break;
        left.atoms.erase(at);
      }
      left.factor = divides ? term.factor / divisor.factor : 0;
      if (divides)
        quotient.add(left);
      else
        rest.push_back(term);
    }
    terms_ = std::move(rest);
    return quotient;
  }

  // a / b or a % b: what divides comes out, the rest is an atom.
  static SymInt divide(char sign, const SymInt& a, const SymInt& b) {
    const std::int64_t value = compute(sign, a.hint(), b.hint());
    if (!a.is_symbolic() && !b.is_symbolic()) return SymInt(value);
    const SymSum divisor(b);
    SymSum rest(a), quotient;
    if (divisor.terms().size() == 1) quotient = rest.take_multiples(divisor.terms()[0]);
    const SymInt left = std::move(rest).finish(rest.hint());
    if (!left.is_symbolic() && !b.is_symbolic()) {  // (8 x + 7) / 8
      if (sign == '%') return SymInt(value);
      quotient.add({floored(left.hint(), b.hint()), {}});
    } else if (!(left.hint() == 0 && !left.is_symbolic())) {
      auto atom = make_intrusive<SymNode>();
      atom->kind = sign == '/' ? Kind::kQuotient : Kind::kRemainder;
      atom->value = compute(sign, left.hint(), b.hint());
      atom->left = node_of(left);
      atom->right = node_of(b);
      atom->text = fmt::format("({} {} {})", in_brackets(left), sign, in_brackets(b));
      if (sign == '%') return SymInt(std::move(atom));
      quotient.add({1, {std::move(atom)}});
    } else if (sign == '%') {
      return SymInt(0);
    }
    return std::move(quotient).finish(value);
  }

 private:
  std::int64_t hint() const {
    std::int64_t sum = 0;
    for (const Term& term : terms_) {
      std::int64_t product = term.factor;
      for (const auto& atom : term.atoms) product = compute('*', product, atom->value);
      sum = compute('+', sum, product);
    }
    return sum;
  }
  static IntrusivePtr<SymNode> node_of(const SymInt& value) {
    if (value.is_symbolic()) return IntrusivePtr<SymNode>::retain_copy(value.node());
    auto number = make_intrusive<SymNode>();
    number->value = value.hint();
    if (number->value != 0) number->terms = {{number->value, {}}};
    number->text = print_terms(number->terms);
    return number;
  }
  static std::string in_brackets(const SymInt& value) {
    if (!value.is_symbolic()) return to_string(value);
    const SymNode& node = *value.node();
    return node.kind == Kind::kSum ? "(" + node.text + ")" : node.text;
  }

  std::vector<Term> terms_;
};

SymInt::SymInt(IntrusivePtr<SymNode> node)
    : word_(reinterpret_cast<std::uint64_t>(node.release()) | 1) {}

void SymInt::refuse(std::int64_t value) {
  throw InvalidArgument(
      fmt::format("symbolic size: {} does not fit the 63 bits of a plain size", value));
}

void SymInt::retain() const {
  static_cast<void>(IntrusivePtr<SymNode>::retain_copy(node()).release());
}

void SymInt::drop() { IntrusivePtr<SymNode>::reclaim(node()).reset(); }

SymInt SymInt::symbol(std::string_view name, std::int64_t hint) {
  if (name.empty() || hint < 0)
    throw InvalidArgument(fmt::format(
        "symbolic size \"{}\" with hint {}: it needs a name and a hint of 0 or more", name, hint));
  auto node = make_intrusive<SymNode>();
  node->kind = Kind::kSymbol;
  node->text = name;
  node->value = hint;
  return SymInt(std::move(node));
}

SymInt operator+(const SymInt& a, const SymInt& b) {
  const std::int64_t value = compute('+', a.hint(), b.hint());
  if (!a.is_symbolic() && !b.is_symbolic()) return SymInt(value);
  SymSum sum(a);
  const SymSum right(b);
  for (const Term& term : right.terms()) sum.add(term);
  return std::move(sum).finish(value);
}

SymInt operator-(const SymInt& a, const SymInt& b) {
  const std::int64_t value = compute('-', a.hint(), b.hint());
  if (!a.is_symbolic() && !b.is_symbolic()) return SymInt(value);
  SymSum sum(a);
  const SymSum right(b);
  for (const Term& term : right.terms()) sum.add({-term.factor, term.atoms});
  return std::move(sum).finish(value);
}

SymInt operator*(const SymInt& a, const SymInt& b) {
  const std::int64_t value = compute('*', a.hint(), b.hint());
  if (!a.is_symbolic() && !b.is_symbolic()) return SymInt(value);
  SymSum sum;
  const SymSum left(a), right(b);
  for (const Term& x : left.terms())
    for (const Term& y : right.terms()) {
      Term product{compute('*', x.factor, y.factor), x.atoms};
      product.atoms.insert(product.atoms.end(), y.atoms.begin(), y.atoms.end());
      std::ranges::stable_sort(product.atoms, {}, [](const auto& atom) -> const std::string& {
        return atom->text;
      });
      sum.add(product);
    }
  return std::move(sum).finish(value);
}

SymInt operator/(const SymInt& a, const SymInt& b) { return SymSum::divide('/', a, b); }

SymInt operator%(const SymInt& a, const SymInt& b) { return SymSum::divide('%', a, b); }

bool is_same(const SymInt& a, const SymInt& b) {
  if (a.word_ == b.word_) return true;
  if (!a.is_symbolic() || !b.is_symbolic()) return false;
  const SymSum left(a), right(b);
  return left.terms().size() == right.terms().size() &&
         std::ranges::all_of(left.terms(), [&](const Term& term) {
           return std::ranges::any_of(right.terms(), [&](const Term& other) {
             return term.factor == other.factor && has_same_atoms(term, other);
           });
         });
}

std::vector<SymInt> atoms_of(const SymInt& value) {
  std::vector<SymInt> atoms;
  const SymSum sum(value);
  if (sum.terms().size() == 1)
    for (const auto& atom : sum.terms()[0].atoms) atoms.push_back(SymInt(atom));
  return atoms;
}

bool operator==(const SymInt& a, const SymInt& b) {
  return is_same(a, b) || SymGuards::compare(a, b, false);
}

bool operator<(const SymInt& a, const SymInt& b) {
  return !is_same(a, b) && SymGuards::compare(a, b, true);
}

SymGuards::SymGuards() : outer_(std::exchange(innermost_guards, this)) {}

SymGuards::~SymGuards() { innermost_guards = outer_; }

bool SymGuards::compare(const SymInt& a, const SymInt& b, bool less) {
  const bool outcome = less ? a.hint() < b.hint() : a.hint() == b.hint();
  if (innermost_guards != nullptr && (a.is_symbolic() || b.is_symbolic()))
    innermost_guards->guards_.push_back({a, b, less, outcome});
  return outcome;
}

bool SymGuards::hold(const std::map<std::string, std::int64_t>& sizes) const {
  for (const Guard& guard : guards_) {
    const std::int64_t left = guard.left.evaluate(sizes), right = guard.right.evaluate(sizes);
    if ((guard.less ? left < right : left == right) != guard.outcome) return false;
  }
  return true;
}

std::vector<std::string> SymGuards::to_strings() const {
  std::vector<std::string> texts;
  for (const Guard& guard : guards_)
    texts.push_back(fmt::format("{} {} {} is {}", to_string(guard.left), guard.less ? "<" : "==",
                                to_string(guard.right), guard.outcome));
  return texts;
}

std::int64_t SymInt::evaluate(const std::map<std::string, std::int64_t>& sizes) const {
  return is_symbolic() ? evaluate_node(*node(), sizes) : hint();
}

std::string to_string(const SymInt& value) {
  if (!value.is_symbolic()) return fmt::format("{}", value.hint());
  const std::string& text = value.node()->text;
  const bool is_bracketed = value.node()->left.defined();  // a quotient or remainder
  return is_bracketed ? text.substr(1, text.size() - 2) : text;
}

}  // namespace tenon
