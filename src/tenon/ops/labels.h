// The label rule of each operator: how the names and symbolic sizes of its result's dimensions
// follow from those of its arguments. Note [Labels of dimensions] in dim_labels.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tenon/tensor/dim_labels.h"
#include "tenon/tensor/scalar.h"

namespace tenon::ops {

struct ConvOptions;
struct Pair;
struct PoolOptions;
enum class Reduction : std::uint8_t;

// Each has the operator's name and its arguments, and gives the labels of its result, of both where
// there are two. Symbols that must be equal for the call to make sense are guarded. A rule runs
// before the arguments are checked: of shapes that do not fit it may say anything. Throws
// InvalidArgument where names do not go together.
namespace labels {

// --- Kept as they are: of the first argument; of the output and the first, which join.
template <typename... Rest>
Labels like(const char*, const Tensor& a, Rest...) {
  return tenon::detail::labels_of(a);
}
template <typename... Rest>
Labels into_like(const char* what, const Tensor& out, const Tensor& a, Rest...) {
  return tenon::detail::unified(what, tenon::detail::labels_of(out), tenon::detail::labels_of(a));
}

// --- Joined from the right, as shapes broadcast.
Labels broadcast(const char* what, const Tensor& a, const Tensor& b);
Labels broadcast_into(const char* what, const Tensor& out, const Tensor& a, const Tensor& b);
Labels broadcast_three(const char* what, const Tensor& a, const Tensor& b, const Tensor& c);
// The mask broadcasts, too.
Labels masked(const char* what, const Tensor& a, const Tensor& mask, const Scalar& value);

// --- Some dropped; with keepdim their size becomes 1.
Labels reduced(const char* what, const Tensor& a, IntList dims, bool keepdim);
Labels variance(const char* what, const Tensor& a, IntList dims, std::int64_t correction,
                bool keepdim);
Labels arg(const char* what, const Tensor& a, std::optional<std::int64_t> dim, bool keepdim);
// Dropped but for Reduction::kNone: then of the targets; of both, joined.
Labels loss(const char* what, const Tensor& a, const Tensor& target, Reduction reduction,
            std::int64_t ignored);
Labels smoothed_loss(const char* what, const Tensor& a, const Tensor& target, Reduction reduction,
                     std::int64_t ignored, double smoothing);
Labels pair_loss(const char* what, const Tensor& a, const Tensor& b, Reduction reduction);
Labels huber(const char* what, const Tensor& a, const Tensor& b, Reduction reduction, double delta);

// --- Products: rows of the first, columns of the second, batches joined; the sizes that are summed
// over are equal.
Labels product(const char* what, const Tensor& a, const Tensor& b);
Labels product_sum(const char* what, const Tensor& bias, const Tensor& a, const Tensor& b);
Labels linear(const char* what, const Tensor& a, const Tensor& weight, const Tensor& bias);
Labels outer(const char* what, const Tensor& a, const Tensor& b);
// Batches of all three joined, places of the query, width of the value.
Labels attention(const char* what, const Tensor& query, const Tensor& key, const Tensor& value,
                 const Tensor& mask, bool is_causal, std::optional<double> scale);

// --- Height and width by the formulas of conv.h and pool.h; batch kept, filters of the weight.
Labels conv(const char* what, const Tensor& a, const Tensor& weight, const Tensor& bias,
            const ConvOptions& options);
Labels conv_line(const char* what, const Tensor& a, const Tensor& weight, const Tensor& bias,
                 const ConvOptions& options);
Labels conv_transposed(const char* what, const Tensor& a, const Tensor& weight, const Tensor& bias,
                       const ConvOptions& options);
Labels pool(const char* what, const Tensor& a, const PoolOptions& options);
Labels pool_to(const char* what, const Tensor& a, const Pair& size);

// --- Chosen: the index's sizes under the names of what it chooses from; new last dimensions.
Labels index_select(const char* what, const Tensor& a, std::int64_t dim, const Tensor& index);
Labels gather(const char* what, const Tensor& a, std::int64_t dim, const Tensor& index);
// As the first; the index's and the source's sizes are equal.
Labels index_add(const char* what, const Tensor& a, std::int64_t dim, const Tensor& index,
                 const Tensor& source);
Labels scatter_add(const char* what, const Tensor& a, std::int64_t dim, const Tensor& index,
                   const Tensor& source);
Labels embedding(const char* what, const Tensor& index, const Tensor& weight);
Labels one_hot(const char* what, const Tensor& index, std::int64_t classes);
Labels topk(const char* what, const Tensor& a, std::int64_t k, std::int64_t dim, bool largest);

// --- Put together: sums along a dimension, multiples, a new dimension; the others joined.
Labels cat(const char* what, std::span<const Tensor> tensors, std::int64_t dim);
Labels stack(const char* what, std::span<const Tensor> tensors, std::int64_t dim);
Labels repeat(const char* what, const Tensor& a, IntList repeats);
Labels pad(const char* what, const Tensor& a, IntList pad, const Scalar& value);

}  // namespace labels
}  // namespace tenon::ops
