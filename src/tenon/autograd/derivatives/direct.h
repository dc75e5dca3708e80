// Derivatives by kernels of their own, where nothing needs to be recorded: what training does most.
#pragma once

#include "tenon/autograd/record.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/pool.h"

// Each serves dense f32 on the host, or what its comment says, and some shapes; where it does not,
// the result is undefined (or false) and nothing has been done. Requires: !formulas_recorded().
namespace tenon::autograd::direct {

// Of conv2d, by oneDNN, in the dtypes that it has (onednn_conv.h). The second fills those of
// `weight` and, if `with_bias`, of `bias`.
Tensor conv_input(const Tensor& gradient, const Tensor& weight, IntList sizes,
                  const ops::ConvOptions& options);
bool conv_weight(const Tensor& gradient, const Tensor& a, IntList sizes,
                 const ops::ConvOptions& options, bool with_bias, Tensor& weight, Tensor& bias);

// Of relu. Which elements pass a gradient on (those that are not <= 0), in bits; undefined for few,
// where the result itself may as well be kept. where_passing: the gradient there, else 0; into
// `gradient` itself where no other tensor sees it. stopped_by: the other elements, as a mask.
Tensor passing_bits(const Tensor& result);
Tensor where_passing(const Tensor& gradient, const Tensor& bits);
Tensor stopped_by(const Tensor& bits, IntList sizes);

// Of max_pool2d without padding. Which place of each window holds its maximum (the first of equal
// ones, or a NaN), a byte for each window of up to 256 places; the input is not needed then.
Tensor max_pool_choices(const Tensor& a, const ops::PoolOptions& options);
Tensor max_pool(const Tensor& gradient, const Tensor& choices, IntList sizes,
                const ops::PoolOptions& options);
// The same as places in the plane, i64.
Tensor max_pool_places(const Tensor& choices, IntList sizes, const ops::PoolOptions& options);

// Of softmax along the last dimension, from its result.
Tensor softmax(const Tensor& gradient, const Tensor& result, std::int64_t dim);

}  // namespace tenon::autograd::direct
