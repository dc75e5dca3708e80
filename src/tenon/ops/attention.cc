#include "tenon/ops/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/matmul.h"
#include "tenon/ops/select.h"
#include "tenon/ops/shape.h"
#include "tenon/ops/softmax.h"
#include "tenon/ops/unary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {

Tensor detail::attention(const Tensor& query, const Tensor& key, const Tensor& value,
                         const Tensor& mask, bool is_causal, std::optional<double> scale) {
  const Device device =
      device_to_offer("scaled_dot_product_attention", {&query, &key, &value, &mask});
  const bool fits = query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2 &&
                    query.size(-1) == key.size(-1) && key.size(-2) == value.size(-2) &&
                    is_floating(query.dtype());
  if (!fits)
    throw InvalidArgument(fmt::format(
        "scaled_dot_product_attention: query {}, key {}, value {}: they must be floating point "
        "[..., L, E], [..., S, E] and [..., S, V]",
        to_string(query.sizes()), to_string(key.sizes()), to_string(value.sizes())));
  if (is_causal && mask.defined())
    throw InvalidArgument("scaled_dot_product_attention: give a mask or is_causal, not both");
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  const DType compute = compute_dtype(query.dtype());
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  Tensor scores = ops::matmul(mul(to(query, compute), factor), to(key, compute).transpose(-1, -2));
  if (is_causal) {
    const Tensor hidden =
        ops::triu(full({query.size(-2), key.size(-2)}, true, DType::kBool, device), 1);
    scores = ops::masked_fill(scores, hidden, kHidden);
  } else if (mask.defined()) {
    scores = mask.dtype() == DType::kBool ? ops::masked_fill(scores, logical_not(mask), kHidden)
                                          : add(scores, to(mask, compute));
  }
  return to(ops::matmul(ops::softmax(scores, -1), to(value, compute)), query.dtype());
}

}  // namespace tenon::ops
