#include "tenon/tensor/sym_int.h"

#include <fmt/format.h>

#include "tenon/base/error.h"

namespace tenon {
namespace {

std::int64_t compute(SymNode::Kind kind, std::int64_t a, std::int64_t b) {
  std::int64_t value = 0;
  const bool overflow = kind == SymNode::Kind::kSum ? __builtin_add_overflow(a, b, &value)
                                                    : __builtin_mul_overflow(a, b, &value);
  if (overflow || value > (INT64_MAX >> 1) || value < (INT64_MIN >> 1))
    throw InvalidArgument(fmt::format("symbolic size: {} {} {} does not fit 63 bits", a,
                                      kind == SymNode::Kind::kSum ? "+" : "*", b));
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
  switch (node.kind) {
    case SymNode::Kind::kConstant:
      return fmt::format("{}", node.value);
    case SymNode::Kind::kSymbol:
      return node.name;
    case SymNode::Kind::kProduct:
      return fmt::format("{} * {}", print_node(*node.left, true), print_node(*node.right, true));
    case SymNode::Kind::kSum:
      break;
  }
  const std::string sum =
      fmt::format("{} + {}", print_node(*node.left, false), print_node(*node.right, false));
  return in_product ? "(" + sum + ")" : sum;
}

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

SymInt operator+(const SymInt& a, const SymInt& b) {
  return SymInt::combine(SymNode::Kind::kSum, a, b);
}

SymInt operator*(const SymInt& a, const SymInt& b) {
  return SymInt::combine(SymNode::Kind::kProduct, a, b);
}

std::int64_t SymInt::evaluate(const std::map<std::string, std::int64_t>& sizes) const {
  return is_symbolic() ? evaluate_node(*node(), sizes) : hint();
}

std::string to_string(const SymInt& value) {
  return value.is_symbolic() ? print_node(*value.node(), false) : fmt::format("{}", value.hint());
}

}  // namespace tenon
