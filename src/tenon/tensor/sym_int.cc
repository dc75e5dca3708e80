#include "tenon/tensor/sym_int.h"

#include <fmt/format.h>

#include "tenon/base/error.h"

namespace tenon {
namespace {

using Kind = SymNode::Kind;

const char* sign_of(Kind kind) {
  switch (kind) {
    case Kind::kSum:
      return "+";
    case Kind::kDifference:
      return "-";
    case Kind::kProduct:
      return "*";
    case Kind::kQuotient:
      return "/";
    default:
      return "%";
  }
}

std::int64_t floored(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

std::int64_t compute(Kind kind, std::int64_t a, std::int64_t b) {
  std::int64_t value = 0;
  bool overflow = false;
  if (kind == Kind::kSum) overflow = __builtin_add_overflow(a, b, &value);
  if (kind == Kind::kDifference) overflow = __builtin_sub_overflow(a, b, &value);
  if (kind == Kind::kProduct) overflow = __builtin_mul_overflow(a, b, &value);
  if (kind == Kind::kQuotient || kind == Kind::kRemainder) {
    if (b == 0) throw InvalidArgument(fmt::format("symbolic size: {} {} 0", a, sign_of(kind)));
    value = kind == Kind::kQuotient ? floored(a, b) : a - floored(a, b) * b;
  }
  if (overflow || value > (INT64_MAX >> 1) || value < (INT64_MIN >> 1))
    throw InvalidArgument(
        fmt::format("symbolic size: {} {} {} does not fit 63 bits", a, sign_of(kind), b));
  return value;
}

std::int64_t evaluate_node(const SymNode& node, const std::map<std::string, std::int64_t>& sizes) {
  if (node.kind == SymNode::Kind::kConstant) return node.value;
  if (node.kind == SymNode::Kind::kSymbol) {
    const auto it = sizes.find(node.name);
    if (it == sizes.end())
      throw InvalidArgument(fmt::format("symbolic size: no value given for \"{}\"", node.name));
    return it->second;
  }
  return compute(node.kind, evaluate_node(*node.left, sizes), evaluate_node(*node.right, sizes));
}

std::string print_node(const SymNode& node, bool in_product) {
  if (node.kind == Kind::kConstant) return fmt::format("{}", node.value);
  if (node.kind == Kind::kSymbol) return node.name;
  const bool is_sum = node.kind == Kind::kSum || node.kind == Kind::kDifference;
  const bool right_alone = node.kind != Kind::kSum && node.kind != Kind::kProduct;
  std::string right = print_node(*node.right, !is_sum || right_alone);
  const bool right_is_sum =
      node.right->kind == Kind::kSum || node.right->kind == Kind::kDifference;
  if (right_alone && !is_sum && node.right->left.defined() && !right_is_sum)
    right = "(" + right + ")";
  const std::string text =
      fmt::format("{} {} {}", print_node(*node.left, !is_sum), sign_of(node.kind), right);
  return is_sum && in_product ? "(" + text + ")" : text;
}

constinit thread_local SymGuards* innermost_guards = nullptr;

}  // namespace

SymInt::SymInt(IntrusivePtr<SymNode> node)
    : word_(reinterpret_cast<std::uint64_t>(node.release()) | 1) {}

void SymInt::retain() const {
  static_cast<void>(IntrusivePtr<SymNode>::retain_copy(node()).release());
}

void SymInt::drop() { IntrusivePtr<SymNode>::reclaim(node()).reset(); }

SymInt SymInt::symbol(std::string_view name, std::int64_t hint) {
  if (name.empty() || hint < 0)
    throw InvalidArgument(fmt::format(
        "symbolic size \"{}\" with hint {}: it needs a name and a hint of 0 or more", name, hint));
  auto node = make_intrusive<SymNode>();
  node->kind = SymNode::Kind::kSymbol;
  node->name = name;
  node->value = hint;
  return SymInt(std::move(node));
}

IntrusivePtr<SymNode> SymInt::as_node() const {
  if (is_symbolic()) return IntrusivePtr<SymNode>::retain_copy(node());
  auto constant = make_intrusive<SymNode>();
  constant->value = hint();
  return constant;
}

SymInt SymInt::combine(SymNode::Kind kind, const SymInt& a, const SymInt& b) {
  const std::int64_t value = compute(kind, a.hint(), b.hint());
  if (!a.is_symbolic() && !b.is_symbolic()) return SymInt(value);
  auto node = make_intrusive<SymNode>();
  node->kind = kind;
  node->value = value;
  node->left = a.as_node();
  node->right = b.as_node();
  return SymInt(std::move(node));
}

SymInt operator+(const SymInt& a, const SymInt& b) { return SymInt::combine(Kind::kSum, a, b); }

SymInt operator-(const SymInt& a, const SymInt& b) {
  return SymInt::combine(Kind::kDifference, a, b);
}

SymInt operator*(const SymInt& a, const SymInt& b) {
  return SymInt::combine(Kind::kProduct, a, b);
}

SymInt operator/(const SymInt& a, const SymInt& b) {
  return SymInt::combine(Kind::kQuotient, a, b);
}

SymInt operator%(const SymInt& a, const SymInt& b) {
  return SymInt::combine(Kind::kRemainder, a, b);
}

// The same node is equal whatever its symbols.
bool operator==(const SymInt& a, const SymInt& b) {
  return a.word_ == b.word_ || SymGuards::compare(a, b, false);
}

bool operator<(const SymInt& a, const SymInt& b) {
  return a.word_ != b.word_ && SymGuards::compare(a, b, true);
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
  return value.is_symbolic() ? print_node(*value.node(), false) : fmt::format("{}", value.hint());
}

}  // namespace tenon
