#include "tenon/ops/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/fused_attention.h"
#include "tenon/ops/matmul.h"
#include "tenon/ops/select.h"
#include "tenon/ops/shape.h"
#include "tenon/ops/softmax.h"
#include "tenon/ops/unary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {

Tensor composed_attention(const Attention& a) {
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  const DType compute = compute_dtype(a.dtype());
  const Tensor keys = to(a.key, compute).transpose(-1, -2);
  Tensor scores = ops::matmul(mul(to(a.query, compute), a.scale), keys);
  if (a.is_causal) {
    const std::int64_t sizes[] = {a.query.size(-2), a.key.size(-2)};
    const Tensor all = full(IntList(sizes, 2), true, DType::kBool, a.query.device());
    scores = ops::masked_fill(scores, ops::triu(all, 1), kHidden);
  } else if (a.mask.defined()) {
    scores = a.mask.dtype() == DType::kBool
                 ? ops::masked_fill(scores, logical_not(a.mask), kHidden)
                 : add(scores, to(a.mask, compute));
  }
  return to(ops::matmul(ops::softmax(scores, -1), to(a.value, compute)), a.dtype());
}

Attention attention_of(const Tensor& query, const Tensor& key, const Tensor& value,
                       const Tensor& mask, bool is_causal, std::optional<double> scale) {
  static_cast<void>(
      device_to_offer("scaled_dot_product_attention", {&query, &key, &value, &mask}));
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
  return {query,     key, value, mask,
          is_causal, scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))))};
}

Tensor detail::attention(const Tensor& query, const Tensor& key, const Tensor& value,
                         const Tensor& mask, bool is_causal, std::optional<double> scale) {
  const Attention attention = attention_of(query, key, value, mask, is_causal, scale);
  if (!has_fused_attention(attention)) return composed_attention(attention);
  const Tensor out = empty_attention(attention);
  fused_attention(attention, {out, {}});
  return out;
}

}  // namespace tenon::ops
