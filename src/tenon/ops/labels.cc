#include "tenon/ops/labels.h"

#include <algorithm>
#include <utility>

#include "tenon/ops/conv.h"
#include "tenon/ops/loss.h"
#include "tenon/ops/pool.h"

namespace tenon::ops::labels {
namespace {

using tenon::detail::labels_of;
using tenon::detail::unified;

// For a comparison's guard alone.
void assume_equal(const SymInt& a, const SymInt& b) { static_cast<void>(a == b); }

// The first ones, without the last `count`.
Labels without_last(const Labels& labels, std::size_t count) {
  return Labels(labels.begin(), labels.end() - static_cast<std::ptrdiff_t>(
                                                   std::min(count, labels.size())));
}

Labels reduced_by(const Tensor& a, std::uint64_t reduced, bool keepdim) {
  const Labels old = labels_of(a);
  Labels left;
  for (std::size_t d = 0; d < old.size(); ++d) {
    if (((reduced >> d) & 1) == 0)
      left.push_back(old[d]);
    else if (keepdim)
      left.push_back({old[d].name, SymInt(1)});
  }
  return left;
}

// Where a dimension stands in labels that must have it, or nowhere.
std::optional<std::size_t> place(const char* what, const Labels& labels, std::int64_t dim) {
  if (labels.empty()) return std::nullopt;
  return static_cast<std::size_t>(wrap_dim(dim, static_cast<std::int64_t>(labels.size()), what));
}

// How many places a kernel takes along a dimension.
SymInt places(const SymInt& size, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
              std::int64_t dilation) {
  if (stride < 1) return size;
  return (size + SymInt(2 * padding - dilation * (kernel - 1) - 1)) / SymInt(stride) + SymInt(1);
}

SymInt places_back(const SymInt& size, std::int64_t kernel, std::int64_t stride,
                   std::int64_t padding, std::int64_t dilation, std::int64_t added) {
  return (size - SymInt(1)) * SymInt(stride) + SymInt(dilation * (kernel - 1) + added + 1) -
         SymInt(2 * padding);
}

Labels joined(const char* what, Labels batch, std::initializer_list<Label> ends) {
  batch.insert(batch.end(), ends);
  tenon::detail::check_distinct(what, batch);
  return batch;
}

}  // namespace

Labels broadcast(const char* what, const Tensor& a, const Tensor& b) {
  return unified(what, labels_of(a), labels_of(b));
}

Labels broadcast_into(const char* what, const Tensor& out, const Tensor& a, const Tensor& b) {
  return unified(what, labels_of(out), broadcast(what, a, b));
}

Labels broadcast_three(const char* what, const Tensor& a, const Tensor& b, const Tensor& c) {
  return unified(what, labels_of(a), broadcast(what, b, c));
}

Labels masked(const char* what, const Tensor& a, const Tensor& mask, const Scalar&) {
  return broadcast(what, a, mask);
}

Labels reduced(const char* what, const Tensor& a, IntList dims, bool keepdim) {
  std::uint64_t bits = dims.empty() ? ~std::uint64_t{0} : 0;
  for (const std::int64_t dim : dims) bits |= std::uint64_t{1} << wrap_dim(dim, a.dim(), what);
  return reduced_by(a, bits, keepdim);
}

Labels variance(const char* what, const Tensor& a, IntList dims, std::int64_t, bool keepdim) {
  return reduced(what, a, dims, keepdim);
}

Labels arg(const char* what, const Tensor& a, std::optional<std::int64_t> dim, bool keepdim) {
  return dim ? reduced(what, a, {*dim}, keepdim) : reduced(what, a, {}, keepdim);
}

Labels loss(const char*, const Tensor& a, const Tensor& target, Reduction reduction, std::int64_t) {
  const Labels of_a = labels_of(a), of_target = labels_of(target);
  for (std::size_t d = 0; d < of_target.size() && of_a.size() > 1; ++d)
    if (const std::size_t from = d + (d > 0 ? 1 : 0); from < of_a.size())
      assume_equal(of_a[from].size, of_target[d].size);
  return reduction == Reduction::kNone ? of_target : Labels();
}

Labels smoothed_loss(const char* what, const Tensor& a, const Tensor& target, Reduction reduction,
                     std::int64_t ignored, double) {
  return loss(what, a, target, reduction, ignored);
}

Labels pair_loss(const char* what, const Tensor& a, const Tensor& b, Reduction reduction) {
  const Labels both = broadcast(what, a, b);
  return reduction == Reduction::kNone ? both : Labels();
}

Labels huber(const char* what, const Tensor& a, const Tensor& b, Reduction reduction, double) {
  return pair_loss(what, a, b, reduction);
}

Labels product(const char* what, const Tensor& a, const Tensor& b) {
  const Labels left = labels_of(a), right = labels_of(b);
  if (left.empty() || right.empty()) return {};
  assume_equal(left.back().size, right[right.size() > 1 ? right.size() - 2 : 0].size);
  Labels out = unified(what, without_last(left, 2), without_last(right, 2));
  if (left.size() > 1) out.push_back(left[left.size() - 2]);
  if (right.size() > 1) out.push_back(right.back());
  tenon::detail::check_distinct(what, out);
  return out;
}

Labels product_sum(const char* what, const Tensor& bias, const Tensor& a, const Tensor& b) {
  return unified(what, labels_of(bias), product(what, a, b));
}

Labels linear(const char* what, const Tensor& a, const Tensor& weight, const Tensor& bias) {
  const Labels in = labels_of(a), of_weight = labels_of(weight);
  if (in.empty() || of_weight.size() != 2) return {};
  assume_equal(in.back().size, of_weight[1].size);
  if (bias.defined() && bias.dim() == 1)
    assume_equal(labels_of(bias)[0].size, of_weight[0].size);
  return joined(what, without_last(in, 1), {of_weight[0]});
}

Labels outer(const char* what, const Tensor& a, const Tensor& b) {
  if (a.dim() != 1 || b.dim() != 1) return {};
  return joined(what, labels_of(a), {labels_of(b)[0]});
}

Labels attention(const char* what, const Tensor& query, const Tensor& key, const Tensor& value,
                 const Tensor& mask, bool, std::optional<double>) {
  const Labels q = labels_of(query), k = labels_of(key), v = labels_of(value);
  if (q.size() < 2 || k.size() < 2 || v.size() < 2) return {};
  assume_equal(q.back().size, k.back().size);
  assume_equal(k[k.size() - 2].size, v[v.size() - 2].size);
  const Labels batch = unified(what, without_last(q, 2),
                               unified(what, without_last(k, 2), without_last(v, 2)));
  if (mask.defined()) {
    Labels scores = batch;
    scores.push_back(q[q.size() - 2]);
    scores.push_back({"", k[k.size() - 2].size});
    static_cast<void>(unified(what, scores, labels_of(mask)));
  }
  return joined(what, batch, {q[q.size() - 2], v.back()});
}

Labels conv(const char* what, const Tensor& a, const Tensor& weight, const Tensor&,
            const ConvOptions& o) {
  const Labels in = labels_of(a), filter = labels_of(weight);
  if (in.size() != 4 || filter.size() != 4) return {};
  assume_equal(in[1].size, filter[1].size * SymInt(o.groups));
  const SymInt height = places(in[2].size, weight.size(2), o.stride.height, o.padding.height,
                               o.dilation.height);
  const SymInt width =
      places(in[3].size, weight.size(3), o.stride.width, o.padding.width, o.dilation.width);
  return joined(what, {in[0], filter[0]}, {{in[2].name, height}, {in[3].name, width}});
}

Labels conv_line(const char* what, const Tensor& a, const Tensor& weight, const Tensor&,
                 const ConvOptions& o) {
  const Labels in = labels_of(a), filter = labels_of(weight);
  if (in.size() != 3 || filter.size() != 3) return {};
  assume_equal(in[1].size, filter[1].size * SymInt(o.groups));
  const SymInt length =
      places(in[2].size, weight.size(2), o.stride.width, o.padding.width, o.dilation.width);
  return joined(what, {in[0], filter[0]}, {{in[2].name, length}});
}

Labels conv_transposed(const char* what, const Tensor& a, const Tensor& weight, const Tensor&,
                       const ConvOptions& o) {
  const Labels in = labels_of(a), filter = labels_of(weight);
  if (in.size() != 4 || filter.size() != 4) return {};
  assume_equal(in[1].size, filter[0].size);
  const SymInt height = places_back(in[2].size, weight.size(2), o.stride.height, o.padding.height,
                                    o.dilation.height, o.output_padding.height);
  const SymInt width = places_back(in[3].size, weight.size(3), o.stride.width, o.padding.width,
                                   o.dilation.width, o.output_padding.width);
  return joined(what, {in[0], {filter[1].name, filter[1].size * SymInt(o.groups)}},
                {{in[2].name, height}, {in[3].name, width}});
}

Labels pool(const char*, const Tensor& a, const PoolOptions& o) {
  Labels out = labels_of(a);
  if (out.size() < 2) return out;
  const auto stride = [](std::int64_t given, std::int64_t kernel) {
    return given == 0 ? kernel : given;
  };
  SymInt& height = out[out.size() - 2].size;
  SymInt& width = out.back().size;
  height = places(height, o.kernel.height, stride(o.stride.height, o.kernel.height),
                  o.padding.height, 1);
  width =
      places(width, o.kernel.width, stride(o.stride.width, o.kernel.width), o.padding.width, 1);
  return out;
}

Labels pool_to(const char*, const Tensor& a, const Pair& size) {
  Labels out = labels_of(a);
  if (out.size() < 2) return out;
  out[out.size() - 2].size = SymInt(size.height);
  out.back().size = SymInt(size.width);
  return out;
}

Labels index_select(const char* what, const Tensor& a, std::int64_t dim, const Tensor& index) {
  Labels out = labels_of(a);
  if (const auto d = place(what, out, dim))
    out[*d].size = index.dim() == 1 ? labels_of(index)[0].size : SymInt(index.numel());
  return out;
}

Labels gather(const char* what, const Tensor& a, std::int64_t, const Tensor& index) {
  const Labels from = labels_of(a);
  Labels out = labels_of(index);
  if (from.size() != out.size()) return out;
  for (std::size_t d = 0; d < out.size(); ++d) {
    Label& to = out[d];
    to = unified(what, {{from[d].name, to.size}}, {to})[0];
  }
  return out;
}

Labels index_add(const char* what, const Tensor& a, std::int64_t dim, const Tensor& index,
                 const Tensor& source) {
  const Labels out = labels_of(a), added = labels_of(source);
  const auto d = place(what, out, dim);
  if (!d || added.size() != out.size() || index.dim() != 1) return out;
  for (std::size_t i = 0; i < out.size(); ++i)
    assume_equal(added[i].size, i == *d ? labels_of(index)[0].size : out[i].size);
  return out;
}

Labels scatter_add(const char*, const Tensor& a, std::int64_t, const Tensor& index,
                   const Tensor& source) {
  const Labels at = labels_of(index), added = labels_of(source);
  for (std::size_t i = 0; i < std::min(at.size(), added.size()); ++i)
    assume_equal(at[i].size, added[i].size);
  return labels_of(a);
}

Labels embedding(const char* what, const Tensor& index, const Tensor& weight) {
  if (weight.dim() != 2) return {};
  return joined(what, labels_of(index), {labels_of(weight)[1]});
}

Labels one_hot(const char*, const Tensor& index, std::int64_t classes) {
  Labels out = labels_of(index);
  out.push_back({"", SymInt(std::max<std::int64_t>(classes, -1))});
  return out;
}

Labels topk(const char* what, const Tensor& a, std::int64_t k, std::int64_t dim, bool) {
  Labels out = labels_of(a);
  if (const auto d = place(what, out, dim)) {
    if (out[*d].size.is_symbolic()) static_cast<void>(out[*d].size < SymInt(k));
    out[*d].size = SymInt(k);
  }
  return out;
}

Labels cat(const char* what, std::span<const Tensor> tensors, std::int64_t dim) {
  Labels out;
  for (const Tensor& t : tensors) {
    if (t.dim() == 1 && t.numel() == 0) continue;
    Labels next = labels_of(t);
    const auto d = place(what, next, dim);
    if (!d || (!out.empty() && out.size() != next.size())) return {};
    if (out.empty()) {
      out = std::move(next);
      continue;
    }
    const SymInt sum = out[*d].size + next[*d].size;
    next[*d].size = out[*d].size = SymInt(1);
    out = unified(what, out, next);
    out[*d].size = sum;
  }
  return out.empty() && !tensors.empty() ? labels_of(tensors[0]) : out;
}

Labels stack(const char* what, std::span<const Tensor> tensors, std::int64_t dim) {
  if (tensors.empty()) return {};
  Labels out = labels_of(tensors[0]);
  for (const Tensor& t : tensors) out = unified(what, out, labels_of(t));
  const std::int64_t at = wrap_dim(dim, static_cast<std::int64_t>(out.size()) + 1, what);
  out.insert(out.begin() + at, {"", SymInt(static_cast<std::int64_t>(tensors.size()))});
  return out;
}

Labels repeat(const char*, const Tensor& a, IntList repeats) {
  Labels out = labels_of(a);
  if (repeats.size() < out.size()) return out;
  out.insert(out.begin(), repeats.size() - out.size(), {"", SymInt(1)});
  for (std::size_t d = 0; d < out.size(); ++d) out[d].size = out[d].size * SymInt(repeats[d]);
  return out;
}

Labels pad(const char*, const Tensor& a, IntList pad, const Scalar&) {
  Labels out = labels_of(a);
  for (std::size_t i = 0; i < pad.size() / 2 && i < out.size(); ++i) {
    SymInt& size = out[out.size() - 1 - i].size;
    size = size + SymInt(pad[2 * i]) + SymInt(pad[2 * i + 1]);
  }
  return out;
}

}  // namespace tenon::ops::labels
