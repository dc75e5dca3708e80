#include "tenon/ops/loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/blocks.h"
#include "tenon/ops/kernels/cpu/softmax_rows.h"
#include "tenon/ops/reduce.h"
#include "tenon/ops/select.h"
#include "tenon/ops/softmax.h"
#include "tenon/ops/unary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/promotion.h"

namespace tenon::ops {
namespace {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  if (reduction == Reduction::kNone) return losses;
  return reduction == Reduction::kSum ? sum(losses) : mean(losses);
}

// Computes f(a - b) for dense blocks in one pass. Requires: floating point.
template <typename T, typename F>
void of_differences(void* out, const void* const* in, std::int64_t count, F&& f) {
  static const BlockFunction subtract = cpu::binary_block(Binary::kSub, dtype_of<T>());
  subtract(out, in, count, nullptr);
  auto* x = static_cast<T*>(out);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) x[i] = f(x[i]);
}
struct Squares {
  template <typename T>
  static void run(void* out, const void* const* in, std::int64_t count, const double*) {
    of_differences<T>(out, in, count, [](T x) { return x * x; });
  }
};
struct Distances {
  template <typename T>
  static void run(void* out, const void* const* in, std::int64_t count, const double*) {
    of_differences<T>(out, in, count, [](T x) { return std::abs(x); });
  }
};
struct Huber {
  template <typename T>
  static void run(void* out, const void* const* in, std::int64_t count, const double* delta) {
    const T limit = static_cast<T>(*delta);
    of_differences<T>(out, in, count, [limit](T x) {
      // x^2 / 2 below the limit, a line above it, without a branch.
      const T distance = std::abs(x), near = distance < limit ? distance : limit;
      return near * (distance - T(0.5) * near);
    });
  }
};

// False, and nothing is done, for what blocks do not compute: devices, integers, and gradients,
// which come from the operators that these losses else consist of.
template <class Loss>
bool pair_losses(Tensor& out, const Tensor& a, const Tensor& b, const double* numbers) {
  const DType dtype = result_type(a, b), compute = compute_dtype(dtype);
  if (!is_floating(dtype) || a.device() != Device{} || b.device() != Device{}) return false;
  if (a.impl()->autograd_meta() != nullptr || b.impl()->autograd_meta() != nullptr) return false;
  ElementwisePlan plan;
  plan.function = compute == DType::kF64 ? &Loss::template run<double> : &Loss::template run<float>;
  plan.input_count = 2;
  plan.input_dtypes = {compute, compute};
  plan.result_dtype = compute;
  plan.numbers = numbers;
  const DimVector sizes = broadcast_sizes(a.sizes(), b.sizes(), "loss");
  out = elementwise_result(sizes, dtype, Device{}, {&a, &b});
  run_elementwise(plan, out, {&a, &b});
  return true;
}

// The dimension of the classes. Throws where the target's shape is not the input's without it.
std::int64_t class_dim(const char* what, const Tensor& input, const Tensor& target) {
  const std::int64_t dim = input.dim() == 1 ? 0 : 1;
  DimVector expected = input.sizes().to_vector();
  if (!expected.empty()) expected.erase(static_cast<std::size_t>(dim));
  if (input.dim() == 0 || !(target.sizes() == IntList(expected)) || !is_integral(target.dtype()))
    throw InvalidArgument(
        fmt::format("{}: a target of {} {} for an input of shape {}; it must be int64 {}", what,
                    dtype_name(target.dtype()), to_string(target.sizes()), to_string(input.sizes()),
                    to_string(IntList(expected))));
  return dim;
}

// Losses by class, -input[target], and what counts of them.
struct Picked {
  Tensor losses;  // 0 where the target is ignored
  Tensor counts;  // 1 or 0, in the input's dtype
};

Picked pick(const Tensor& input, const Tensor& target, std::int64_t dim,
            std::int64_t ignore_index) {
  const Tensor counts = to(ne(target, ignore_index), input.dtype());
  const Tensor safe = masked_fill(to(target, DType::kI64), eq(target, ignore_index), 0);
  const Tensor chosen = gather(input, dim, safe.unsqueeze(dim)).squeeze(dim);
  // where rather than a product: an infinite ignored loss counts for nothing, too.
  return {where(ne(target, ignore_index), neg(chosen), zeros({}, input.dtype())), counts};
}

Tensor reduce_counted(const Tensor& losses, const Tensor& counts, Reduction reduction) {
  if (reduction == Reduction::kNone) return losses;
  const Tensor total = sum(losses);
  return reduction == Reduction::kSum ? total : div(total, sum(counts));
}

void note_first(std::atomic<std::int64_t>& first, std::int64_t found) {
  std::int64_t known = first.load(std::memory_order_relaxed);
  while (found < known && !first.compare_exchange_weak(known, found, std::memory_order_relaxed)) {
  }
}

// The sum or mean of the losses of f32 rows, without anything kept: in f64, by stretches of rows of
// one length and then by stretches in order, so that threads change nothing.
Tensor direct_cross_entropy(const Tensor& given, const Tensor& target, bool mean,
                            std::int64_t ignore_index) {
  constexpr std::int64_t kStretch = 64;
  const Tensor input = contiguous(given);
  const Tensor classes = contiguous(target);
  const std::int64_t rows = input.size(0), width = input.size(1);
  const auto* x = input.const_data_ptr<float>();
  const auto* wanted = classes.const_data_ptr<std::int64_t>();
  const auto log_sum = cpu::row_functions(DType::kF32).log_sum;
  struct Total {
    double losses = 0;
    std::int64_t counted = 0;
  };
  std::vector<Total> totals(static_cast<std::size_t>((rows + kStretch - 1) / kStretch));
  const auto stretches = static_cast<std::int64_t>(totals.size());
  std::atomic<std::int64_t> wrong{rows};
  parallel_for(0, stretches, std::max<std::int64_t>(1, 16384 / (kStretch * width)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t s = begin; s < end; ++s) {
                   Total total;
                   const std::int64_t stop = std::min(rows, (s + 1) * kStretch);
                   for (std::int64_t i = s * kStretch; i < stop; ++i) {
                     if (wanted[i] == ignore_index) continue;
                     if (wanted[i] < 0 || wanted[i] >= width) return note_first(wrong, i);
                     const float* row = x + i * width;
                     total.losses += log_sum(row, width) - static_cast<double>(row[wanted[i]]);
                     ++total.counted;
                   }
                   totals[static_cast<std::size_t>(s)] = total;
                 }
               });
  if (wrong < rows)
    throw InvalidArgument(fmt::format("cross_entropy: class {} of {}", wanted[wrong], width));
  Total all;
  for (const Total& total : totals) {
    all.losses += total.losses;
    all.counted += total.counted;
  }
  const Tensor out = empty({});
  *out.data_ptr<float>() = static_cast<float>(
      mean ? all.losses / static_cast<double>(all.counted) : all.losses);
  return out;
}

}  // namespace

Tensor detail::nll_loss(const Tensor& input, const Tensor& target, Reduction reduction,
                        std::int64_t ignore_index) {
  device_to_offer("nll_loss", {&input, &target});
  const std::int64_t dim = class_dim("nll_loss", input, target);
  const Picked picked = pick(input, target, dim, ignore_index);
  return reduce_counted(picked.losses, picked.counts, reduction);
}

Tensor detail::cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                             std::int64_t ignore_index, double label_smoothing) {
  device_to_offer("cross_entropy", {&logits, &target});
  if (!(label_smoothing >= 0 && label_smoothing <= 1))
    throw InvalidArgument(
        fmt::format("cross_entropy: label smoothing of {}; it may be 0 to 1", label_smoothing));
  const std::int64_t dim = class_dim("cross_entropy", logits, target);
  if (label_smoothing == 0 && reduction != Reduction::kNone && logits.dim() == 2 &&
      logits.dtype() == DType::kF32 && target.dtype() == DType::kI64 &&
      logits.device() == Device{} && logits.size(1) > 0)
    return direct_cross_entropy(logits, target, reduction == Reduction::kMean, ignore_index);
  const Tensor log_probabilities = ops::log_softmax(logits, dim);
  const Picked picked = pick(log_probabilities, target, dim, ignore_index);
  if (label_smoothing == 0) return reduce_counted(picked.losses, picked.counts, reduction);
  const Tensor even = ops::where(ne(target, ignore_index), neg(ops::mean(log_probabilities, dim)),
                            zeros({}, logits.dtype()));
  return reduce_counted(add(mul(picked.losses, 1 - label_smoothing), mul(even, label_smoothing)),
                        picked.counts, reduction);
}

Tensor detail::mse_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  Tensor losses;
  if (!pair_losses<Squares>(losses, a, b, nullptr)) losses = square(sub(a, b));
  return reduced(losses, reduction);
}

Tensor detail::l1_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  Tensor losses;
  if (!pair_losses<Distances>(losses, a, b, nullptr)) losses = abs(sub(a, b));
  return reduced(losses, reduction);
}

Tensor detail::huber_loss(const Tensor& a, const Tensor& b, Reduction reduction, double delta) {
  if (!(delta > 0)) throw InvalidArgument(fmt::format("huber_loss: a delta of {}", delta));
  Tensor losses;
  if (pair_losses<Huber>(losses, a, b, &delta)) return reduced(losses, reduction);
  const Tensor distance = abs(sub(a, b));
  losses = ops::where(le(distance, delta), mul(square(distance), 0.5),
                              mul(sub(distance, 0.5 * delta), delta));
  return reduced(losses, reduction);
}

Tensor detail::bce_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction) {
  // max(x, 0) - x y + log(1 + exp(-|x|)), which overflows nowhere.
  const Tensor losses = add(sub(relu(logits), mul(logits, target)), log1p(exp(neg(abs(logits)))));
  return reduced(losses, reduction);
}

}  // namespace tenon::ops
