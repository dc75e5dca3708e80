// What dimensions carry besides their size: names and symbolic sizes. O(dimensions) for each call.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/tensor/autograd_meta.h"
#include "tenon/tensor/tensor.h"

// Note [Labels of dimensions]
//
// A label is a dimension's name and its size, which may be symbolic. Both follow the same rules,
// one for each view (dim_labels.cc) and each operator (ops/labels.h). A dimension of the result is
// kept from an operand, joined from several (equal names, or one of them without; equal sizes, or
// 1), computed (a convolution's height), or new. Names follow PyTorch's rules for named tensors
// where it has one.
//
//   - A comparison of sizes that a symbol decides goes to the thread's SymGuards.
//   - An operator without a rule guards every symbol of its operands at its hint, and its results
//     have no labels. So has as_strided.
//   - reshape keeps no names (which old dimension would a new one be?).
//   - An output that is written in place must unify with the result, and takes what it has not.
//
// What an operator computes inside itself, and backward, go without names (NoNames) and with
// symbols. There sizes are often plain numbers, asked of a tensor or saved by a node. On the meta
// device, a shape that equals that of an operand of the call or its result has its symbols
// (KnownShapes). Two that are equal by their hints alone are told apart by nothing: their symbols
// are guarded.
//
// A tensor without labels pays nothing: DispatchKey::kLabels leads operators here, and views test
// one flag, together with that of a gradient.
namespace tenon {

// A name for each dimension, "" for none.
using DimNames = std::vector<std::string>;
using SymSizes = std::vector<SymInt>;

// What one dimension carries.
struct Label {
  std::string name;  // "": none
  SymInt size;
};
// One for each dimension.
using Labels = std::vector<Label>;

// The calling thread neither checks nor hands on names while it lives. Nests.
class NoNames {
 public:
  NoNames();
  ~NoNames();
  NoNames(const NoNames&) = delete;
  NoNames& operator=(const NoNames&) = delete;
};

// The shapes that plain sizes on the calling thread may stand for while it lives. Nests; the
// innermost counts. The shapes must outlive it.
class KnownShapes {
 public:
  explicit KnownShapes(std::span<const SymSizes> shapes);
  ~KnownShapes();
  KnownShapes(const KnownShapes&) = delete;
  KnownShapes& operator=(const KnownShapes&) = delete;

 private:
  const std::span<const SymSizes> outer_;
};

namespace detail {

inline bool is_labelled(const Tensor& t) { return t.impl()->is_labelled(); }
SymInt sym_numel(const Tensor& t);
// Whether it has fewer elements; a guard where symbols decide.
inline bool has_fewer_elements(const Tensor& t, std::int64_t count) {
  return is_labelled(t) ? sym_numel(t) < SymInt(count) : t.numel() < count;
}

// --- Each is right for tensors without labels, too, but callers test is_labelled first.
// Tells gradient metadata and labels of a view that was just made.
void follow_view(const Tensor& base, Tensor& view, const ViewInfo& info);
// The same for several that one call made: infos[i] of views[i].
void follow_views(const Tensor& base, std::span<Tensor> views, std::span<const ViewInfo> infos);
// Of a copy, or of another result whose dimensions are the source's.
void label_like(const Tensor& result, const Tensor& source);
// `source` is about to be written into `target`, which takes what it has not. Throws
// InvalidArgument where names do not unify.
void label_written(const char* what, const Tensor& target, const Tensor& source);
// A fresh tensor on the meta device, or a view of one: the symbols of the known shape that its
// sizes stand for, if there is one.
void label_known(const Tensor& t);

// A tensor's labels: its names, unless they are off, and its sizes.
Labels labels_of(const Tensor& t);
// Makes them those of `result`. Names of "" and plain sizes are none. `fresh`: the result has its
// storage to itself. Requires: the result's sizes by their hints; else InternalError names `what`.
void give_labels(const char* what, const Tensor& result, const Labels& labels, bool fresh);
// Of two that broadcast, from the right. Throws InvalidArgument where names do not unify.
Labels unified(const char* what, const Labels& a, const Labels& b);
// Throws InvalidArgument where two dimensions have one name.
void check_distinct(const char* what, const Labels& labels);
// Guards the size at its hint.
void assume_hint(const SymInt& size);

// The symbolic sizes of any tensor: those it was given, or its sizes.
SymSizes sym_sizes_of(const Tensor& t);
// A fresh tensor's sizes as expressions, its storage's bytes with them.
void give_sym_sizes(const Tensor& t, SymSizes sizes);

}  // namespace detail
}  // namespace tenon
