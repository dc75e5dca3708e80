#include "tenon/ops/loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/loss_blocks.h"
#include "tenon/ops/kernels/cpu/softmax_rows.h"
#include "tenon/ops/reduce.h"
#include "tenon/ops/select.h"
#include "tenon/ops/softmax.h"
#include "tenon/ops/unary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/half_rows.h"
#include "tenon/tensor/promotion.h"

namespace tenon::ops {
namespace {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  if (reduction == Reduction::kNone) return losses;
  return reduction == Reduction::kSum ? sum(losses) : mean(losses);
}

// Gradients come from the operators that a loss consists of: the call is not one that a node of its
// own stands for.
bool is_recorded(const Tensor& t) {
  return t.impl()->autograd_meta() != nullptr &&
         !detail::thread_keys.excluded.has(DispatchKey::kAutograd);
}

// Sums of losses of two dense tensors of one shape and dtype, in pieces of one length and then by
// pieces in order, so that threads change nothing. No loss is kept.
Tensor summed_losses(const cpu::LossBlocks& blocks, const Tensor& a, const Tensor& b, bool mean,
                     const double* numbers) {
  constexpr std::int64_t kPiece = 16384, kBlock = 1024;
  const DType dtype = a.dtype(), compute = compute_dtype(dtype);
  const auto item = static_cast<std::int64_t>(a.item_size());
  const Tensor* both[2] = {&a, &b};
  const char* from[2];
  for (int k = 0; k < 2; ++k) from[k] = static_cast<const char*>(both[k]->const_data_ptr());
  std::vector<double> totals(static_cast<std::size_t>((a.numel() + kPiece - 1) / kPiece));
  const auto piece = [&](std::int64_t begin, std::int64_t end) {
    const void* in[2] = {from[0] + begin * item, from[1] + begin * item};
    if (dtype == compute) return blocks.sum(in, end - begin, numbers);
    double total = 0;
    alignas(64) float wide[2][kBlock];
    for (std::int64_t at = begin; at < end; at += kBlock) {
      for (int k = 0; k < 2; ++k) {
        tenon::detail::convert_elements(compute, wide[k], dtype, from[k] + at * item,
                                        std::min(kBlock, end - at));
        in[k] = wide[k];
      }
      total += blocks.sum(in, std::min(kBlock, end - at), numbers);
    }
    return total;
  };
  parallel_for(0, static_cast<std::int64_t>(totals.size()), 2,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   totals[static_cast<std::size_t>(i)] =
                       piece(i * kPiece, std::min(a.numel(), (i + 1) * kPiece));
               });
  double total = 0;
  for (const double of_piece : totals) total += of_piece;
  return full({}, mean ? total / static_cast<double>(a.numel()) : total, dtype);
}

// Undefined, and nothing is done, for what blocks do not compute: devices, integers, and what is
// recorded.
Tensor pair_losses(cpu::PairLoss loss, const Tensor& a, const Tensor& b, Reduction reduction,
                   const double* numbers = nullptr) {
  const DType dtype = result_type(a, b), compute = compute_dtype(dtype);
  if (!is_floating(dtype) || a.device() != Device{} || b.device() != Device{}) return {};
  if (is_recorded(a) || is_recorded(b)) return {};
  const cpu::LossBlocks blocks = cpu::loss_blocks(loss, compute);
  if (reduction != Reduction::kNone && a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
      a.is_contiguous() && b.is_contiguous())
    return summed_losses(blocks, a, b, reduction == Reduction::kMean, numbers);
  ElementwisePlan plan;
  plan.function = blocks.each;
  plan.input_count = 2;
  plan.input_dtypes = {compute, compute};
  plan.result_dtype = compute;
  plan.numbers = numbers;
  const DimVector sizes = broadcast_sizes(a.sizes(), b.sizes(), "loss");
  const Tensor out = elementwise_result(sizes, dtype, Device{}, {&a, &b});
  run_elementwise(plan, out, {&a, &b});
  return reduced(out, reduction);
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

// Losses of floating-point classes [outer, classes, inner] on the host that nothing records, in one
// pass. Sums are in f64, by stretches of targets of one length and then by stretches in order, so
// that threads change nothing.
class DirectLosses {
 public:
  DirectLosses(const char* what, const Tensor& input, const Tensor& target, std::int64_t dim,
               Reduction reduction, std::int64_t ignore_index)
      : what_(what),
        input_(contiguous(input)),
        target_(contiguous(target)),
        reduction_(reduction),
        ignored_(ignore_index),
        classes_(input.size(dim)),
        inner_(dim == 0 || target.numel() == 0 ? 1 : target.numel() / input.size(0)) {}

  static bool serves(const Tensor& input, const Tensor& target) {
    return is_floating(input.dtype()) && !is_float8(input.dtype()) &&
           target.dtype() == DType::kI64 && input.device() == Device{} && !is_recorded(input);
  }

  // -input[target].
  template <typename T>
  Tensor negative() const {
    const T* x = input_.const_data_ptr<T>();
    return run<T>(1, [&] {
      return [=, this](std::int64_t outer, std::int64_t inner, std::int64_t wanted) {
        return -as_double(x[(outer * classes_ + wanted) * inner_ + inner]);
      };
    });
  }
  // log(sum(exp(input))) - input[target]. Requires: inner = 1.
  template <typename T>
  Tensor log_sums() const {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const auto log_sum = cpu::row_functions(dtype_of<Wide>()).log_sum;
    const T* x = input_.const_data_ptr<T>();
    return run<T>(classes_, [&] {
      // 16-bit rows are widened some at a time.
      const auto at_least_one = [](std::int64_t n) { return std::max<std::int64_t>(1, n); };
      const std::int64_t batch = at_least_one(4096 / at_least_one(classes_));
      std::vector<Wide> wide(std::is_same_v<T, Wide> ? 0
                                                     : static_cast<std::size_t>(batch * classes_));
      return [=, this, wide = std::move(wide), held = -batch](
                 std::int64_t outer, std::int64_t, std::int64_t wanted) mutable {
        const T* row = x + outer * classes_;
        if constexpr (std::is_same_v<T, Wide>) {
          static_cast<void>(held);
          return log_sum(row, classes_) - as_double(row[wanted]);
        } else {
          if (outer >= held + batch) {
            held = outer;
            const std::int64_t rows = std::min(batch, target_.numel() - outer);
            tenon::detail::convert_dense(wide.data(), row, rows * classes_);
          }
          return log_sum(wide.data() + (outer - held) * classes_, classes_) -
                 as_double(row[wanted]);
        }
      };
    });
  }

 private:
  static constexpr std::int64_t kStretch = 64;
  struct Total {
    double losses = 0;
    std::int64_t counted = 0;
  };

  template <typename T>
  static double as_double(T x) {
    if constexpr (sizeof(T) == 2)
      return static_cast<double>(static_cast<float>(x));
    else
      return static_cast<double>(x);
  }

  // make_loss(): for one thread, whose targets come in order.
  template <typename T, typename MakeLoss>
  Tensor run(std::int64_t work, MakeLoss&& make_loss) const {
    const std::int64_t count = target_.numel(), stretches = (count + kStretch - 1) / kStretch;
    const auto* wanted = target_.const_data_ptr<std::int64_t>();
    const bool single = reduction_ == Reduction::kNone;
    const Tensor out = empty(single ? target_.sizes() : IntList(), input_.dtype());
    T* const each = single ? out.data_ptr<T>() : nullptr;
    std::vector<Total> totals(static_cast<std::size_t>(stretches));
    std::atomic<std::int64_t> wrong{count};
    const std::int64_t elements = kStretch * std::max<std::int64_t>(1, work);
    parallel_for(
        0, stretches, std::max<std::int64_t>(1, 16384 / elements),
        [&](std::int64_t begin, std::int64_t end) {
          auto loss = make_loss();
          for (std::int64_t s = begin; s < end; ++s) {
            Total total;
            const std::int64_t stop = std::min(count, (s + 1) * kStretch);
            std::int64_t outer = s * kStretch / inner_, inner = s * kStretch % inner_;
            for (std::int64_t i = s * kStretch; i < stop; ++i) {
              const std::int64_t t = wanted[i];
              const bool counts = t != ignored_;
              if (counts && (t < 0 || t >= classes_)) return note_first(wrong, i);
              const double found = counts ? loss(outer, inner, t) : 0.0;
              if (single) each[i] = static_cast<T>(static_cast<float_of<T>>(found));
              total.losses += found;
              total.counted += counts;
              if (++inner == inner_) inner = 0, ++outer;
            }
            totals[static_cast<std::size_t>(s)] = total;
          }
        });
    if (wrong < count)
      throw InvalidArgument(fmt::format("{}: class {} of {}", what_, wanted[wrong], classes_));
    if (single) return out;
    Total all;
    for (const Total& total : totals) {
      all.losses += total.losses;
      all.counted += total.counted;
    }
    const double found = reduction_ == Reduction::kMean
                             ? all.losses / static_cast<double>(all.counted)
                             : all.losses;
    *out.data_ptr<T>() = static_cast<T>(static_cast<float_of<T>>(found));
    return out;
  }
  template <typename T>
  using float_of = std::conditional_t<std::is_same_v<T, double>, double, float>;

  const char* const what_;
  const Tensor input_, target_;
  const Reduction reduction_;
  const std::int64_t ignored_, classes_, inner_;
};

template <typename F>
Tensor by_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64:
      return f(double());
    case DType::kF16:
      return f(Half());
    case DType::kBF16:
      return f(BFloat16());
    default:
      return f(float());
  }
}

}  // namespace

Tensor detail::nll_loss(const Tensor& input, const Tensor& classes, Reduction reduction,
                        std::int64_t ignore_index) {
  device_to_offer("nll_loss", {&input, &classes});
  const std::int64_t dim = class_dim("nll_loss", input, classes);
  const Tensor target = to(classes, DType::kI64);  // ignore_index may be no number of its dtype
  if (DirectLosses::serves(input, target)) {
    const DirectLosses losses("nll_loss", input, target, dim, reduction, ignore_index);
    return by_dtype(input.dtype(),
                    [&](auto t) { return losses.negative<decltype(t)>(); });
  }
  const Picked picked = pick(input, target, dim, ignore_index);
  return reduce_counted(picked.losses, picked.counts, reduction);
}

Tensor detail::cross_entropy(const Tensor& logits, const Tensor& classes, Reduction reduction,
                             std::int64_t ignore_index, double label_smoothing) {
  device_to_offer("cross_entropy", {&logits, &classes});
  if (!(label_smoothing >= 0 && label_smoothing <= 1))
    throw InvalidArgument(
        fmt::format("cross_entropy: label smoothing of {}; it may be 0 to 1", label_smoothing));
  const std::int64_t dim = class_dim("cross_entropy", logits, classes);
  const Tensor target = to(classes, DType::kI64);
  if (label_smoothing == 0 && logits.dim() <= 2 && DirectLosses::serves(logits, target)) {
    const DirectLosses losses("cross_entropy", logits, target, dim, reduction, ignore_index);
    return by_dtype(logits.dtype(),
                    [&](auto t) { return losses.log_sums<decltype(t)>(); });
  }
  const Tensor log_probabilities = ops::log_softmax(logits, dim);
  if (label_smoothing == 0)
    return ops::nll_loss(log_probabilities, target, reduction, ignore_index);
  const Picked picked = pick(log_probabilities, target, dim, ignore_index);
  const Tensor even = ops::where(ne(target, ignore_index), neg(ops::mean(log_probabilities, dim)),
                            zeros({}, logits.dtype()));
  return reduce_counted(add(mul(picked.losses, 1 - label_smoothing), mul(even, label_smoothing)),
                        picked.counts, reduction);
}

Tensor detail::mse_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  const Tensor loss = pair_losses(cpu::PairLoss::kSquared, a, b, reduction);
  return loss.defined() ? loss : reduced(square(sub(a, b)), reduction);
}

Tensor detail::l1_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  const Tensor loss = pair_losses(cpu::PairLoss::kAbsolute, a, b, reduction);
  return loss.defined() ? loss : reduced(abs(sub(a, b)), reduction);
}

Tensor detail::huber_loss(const Tensor& a, const Tensor& b, Reduction reduction, double delta) {
  if (!(delta > 0)) throw InvalidArgument(fmt::format("huber_loss: a delta of {}", delta));
  if (const Tensor loss = pair_losses(cpu::PairLoss::kHuber, a, b, reduction, &delta);
      loss.defined())
    return loss;
  const Tensor distance = abs(sub(a, b));
  const Tensor losses = ops::where(le(distance, delta), mul(square(distance), 0.5),
                              mul(sub(distance, 0.5 * delta), delta));
  return reduced(losses, reduction);
}

Tensor detail::bce_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction) {
  // max(x, 0) - x y + log(1 + exp(-|x|)), which overflows nowhere.
  const Tensor smooth = log_sigmoid(abs(logits));
  return reduced(sub(sub(relu(logits), mul(logits, target)), smooth), reduction);
}

}  // namespace tenon::ops
