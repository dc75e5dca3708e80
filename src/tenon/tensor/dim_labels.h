// What dimensions carry besides their size: names and symbolic sizes, and how they go along.
#pragma once

#include <string>
#include <vector>

#include "tenon/tensor/autograd_meta.h"
#include "tenon/tensor/tensor.h"

// Note [Labels of dimensions]
//
// Names follow PyTorch's rules for named tensors; symbolic sizes follow by the same ones.
//
//   views         a dimension that stays keeps its label; new ones have none; reshape and
//                 as_strided keep no names (which old dimension would a new one be?)
//   copies        clone, to, contiguous, detach, data, set_data: all labels
//   element-wise  unified from the right: equal, or one of them without; else InvalidArgument
//   reductions    the kept dimensions keep theirs
//   products      rows of the first, columns of the second, batches unified
//   in place      the operands must unify with the output, which takes what it has not
//   the rest      results have none
//
// Backward and what an operator computes inside itself go without labels (NoLabels).
// A tensor without labels pays nothing: one flag is tested, together with that of a gradient.
namespace tenon {

// A name for each dimension, "" for none.
using DimNames = std::vector<std::string>;

// The calling thread neither checks nor hands on labels while it lives. Nests.
class NoLabels {
 public:
  NoLabels();
  ~NoLabels();
  NoLabels(const NoLabels&) = delete;
  NoLabels& operator=(const NoLabels&) = delete;
};

namespace detail {

inline bool is_labelled(const Tensor& t) { return t.impl()->is_labelled(); }

// --- Each does nothing for tensors without labels, so callers test is_labelled first.
// Tells gradient metadata and labels of a view that was just made.
void follow_view(const Tensor& base, Tensor& view, const ViewInfo& info);
// The same for several that one call made: infos[i] of views[i].
void follow_views(const Tensor& base, std::span<Tensor> views, std::span<const ViewInfo> infos);
// Of a copy, or of another result whose dimensions are the source's.
void label_like(const Tensor& result, const Tensor& source);
// Throws InvalidArgument where names do not unify. `fresh`: the result was made for the operands;
// else it is written in place, and its own labels count too.
void label_broadcast(const char* what, const Tensor& result, const Tensor& a, const Tensor& b,
                     bool fresh);
void label_reduced(const Tensor& result, const Tensor& source, std::uint64_t reduced_dims,
                   bool keepdim);
void label_product(const Tensor& result, const Tensor& a, const Tensor& b);

// The symbolic sizes of any tensor: those it was given, or its sizes.
std::vector<SymInt> sym_sizes_of(const Tensor& t);
// A fresh tensor's sizes as expressions, its storage's bytes with them.
void give_sym_sizes(const Tensor& t, std::vector<SymInt> sizes);

}  // namespace detail
}  // namespace tenon
