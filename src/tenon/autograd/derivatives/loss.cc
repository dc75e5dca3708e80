#include <algorithm>
#include <vector>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/softmax_rows.h"
#include "tenon/tensor/promotion.h"

namespace tenon::autograd {
namespace {

using namespace ops;

// Losses of pairs, averaged or summed or not: formula(difference, delta) by recorded operators, and
// slope(difference, delta) of one element, without a branch.
struct Mse {
  static constexpr const char* kName = "mse_loss";
  static Tensor formula(const Tensor& x, double) { return x * 2; }
  template <typename T>
  static T slope(T x, T) {
    return 2 * x;
  }
};
struct L1 {
  static constexpr const char* kName = "l1_loss";
  static Tensor formula(const Tensor& x, double) { return sign(x); }
  template <typename T>
  static T slope(T x, T) {
    return x != x ? x : static_cast<T>((x > 0) - (x < 0));
  }
};
struct Huber {
  static constexpr const char* kName = "huber_loss";
  static Tensor formula(const Tensor& x, double delta) { return clamp(x, -delta, delta); }
  template <typename T>
  static T slope(T x, T delta) {
    const T raised = x < -delta ? -delta : x;
    return raised > delta ? delta : raised;
  }
};

template <class Loss>
class PairLossNode final : public NodeOf<2> {
 public:
  const char* name() const override { return Loss::kName; }
  void save(std::uint32_t, const Tensor& a, const Tensor& b, Reduction reduction,
            double delta = 0) {
    a_.save(a);
    b_.save(b);
    reduction_ = reduction;
    delta_ = delta;
  }
  void release_saved() override {
    a_.release();
    b_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor a = a_.get(*this), b = b_.get(*this);
    const Tensor slope = formulas_recorded() || !is_floating(result_type(a, b)) ||
                                 a.device().type == DeviceType::kVulkan
                             ? by_operators(call.grad(), a, b)
                             : in_one_pass(call.grad(), a, b);
    if (call.wants(0)) call.out[0] = match(slope, a.sizes(), a.dtype());
    if (call.wants(1)) call.out[1] = match(neg(slope), b.sizes(), b.dtype());
  }

 private:
  // Of the gradient that comes in, for each loss.
  double share(std::int64_t count) const {
    return reduction_ == Reduction::kMean ? 1 / static_cast<double>(count) : 1.0;
  }
  Tensor by_operators(const Tensor& gradient, const Tensor& a, const Tensor& b) const {
    const Tensor difference = sub(a, b);
    return ops::mul(Loss::formula(difference, delta_),
                    ops::mul(gradient, share(difference.numel())));
  }
  template <typename T>
  static void block(void* out, const void* const* in, std::int64_t count, const double* numbers) {
    const auto* g = static_cast<const T*>(in[0]);
    const auto* a = static_cast<const T*>(in[1]);
    const auto* b = static_cast<const T*>(in[2]);
    auto* to = static_cast<T*>(out);
    const T share = static_cast<T>(numbers[0]), delta = static_cast<T>(numbers[1]);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = g[i] * share * Loss::slope(a[i] - b[i], delta);
  }
  Tensor in_one_pass(const Tensor& gradient, const Tensor& a, const Tensor& b) const {
    const DimVector sizes = broadcast_sizes(a.sizes(), b.sizes(), Loss::kName);
    const DType dtype = result_type(a, b), compute = compute_dtype(dtype);
    const double numbers[2] = {share(numel_of(sizes)), delta_};
    ElementwisePlan plan;
    plan.name = Loss::kName;
    plan.function = compute == DType::kF64 ? &block<double> : &block<float>;
    plan.input_count = 3;
    plan.input_dtypes = {compute, compute, compute};
    plan.result_dtype = compute;
    plan.numbers = numbers;
    const Tensor out = elementwise_result(sizes, dtype, gradient.device(), {&a, &b});
    run_elementwise(plan, out, {&gradient, &a, &b});
    return out;
  }

  SavedTensor a_, b_;
  Reduction reduction_ = Reduction::kMean;
  double delta_ = 0;
};

// sigmoid(x) - y: what the forward formula is made of has no slope at 0.
class BinaryCrossEntropyNode final : public NodeOf<2> {
 public:
  const char* name() const override { return "binary_cross_entropy_with_logits"; }
  void save(std::uint32_t, const Tensor& logits, const Tensor& target, Reduction reduction) {
    logits_.save(logits);
    target_.save(target);
    reduction_ = reduction;
  }
  void release_saved() override {
    logits_.release();
    target_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor x = logits_.get(*this), y = target_.get(*this);
    const DimVector sizes = broadcast_sizes(x.sizes(), y.sizes(), name());
    const std::int64_t count = numel_of(sizes);
    const Tensor share = reduction_ == Reduction::kMean
                             ? ops::mul(call.grad(), 1 / static_cast<double>(count))
                             : call.grad();
    if (call.wants(0))
      call.out[0] = match(ops::mul(sub(sigmoid(x), y), share), x.sizes(), x.dtype());
    if (call.wants(1))
      call.out[1] = match(neg(ops::mul(x, share)).expand(sizes), y.sizes(), y.dtype());
  }

 private:
  SavedTensor logits_, target_;
  Reduction reduction_ = Reduction::kMean;
};

// The gradient's share of each target of losses by class: 0 of an ignored one.
template <typename T>
std::vector<T> shares_of(const Tensor& gradient, const Tensor& target, Reduction reduction,
                         std::int64_t ignored) {
  const std::int64_t count = target.numel();
  const auto* wanted = target.const_data_ptr<std::int64_t>();
  const std::int64_t counted = count - std::count(wanted, wanted + count, ignored);
  const double share = reduction == Reduction::kMean ? 1 / static_cast<double>(counted) : 1.0;
  const Tensor given = contiguous(to(gradient, dtype_of<T>()));
  const T* g = given.const_data_ptr<T>();
  const bool is_one = given.dim() == 0;
  std::vector<T> shares(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    shares[static_cast<std::size_t>(i)] =
        wanted[i] == ignored ? T(0) : static_cast<T>(g[is_one ? 0 : i] * share);
  return shares;
}

// Zeros, less the share at each target.
class NllLossNode final : public NodeOf<2> {
 public:
  const char* name() const override { return "nll_loss"; }
  void save(std::uint32_t, const Tensor& input, const Tensor& target, Reduction reduction,
            std::int64_t ignored) {
    input_.save(input);
    target_.save(target);
    reduction_ = reduction;
    ignored_ = ignored;
  }
  void release_saved() override { target_.release(); }
  void backward(const BackwardCall& call) override {
    const Tensor target = to(target_.get(*this), DType::kI64);
    const Tensor& g = call.grad();
    const std::int64_t dim = input_.sizes().size() == 1 ? 0 : 1;
    if (!formulas_recorded() && g.device() == Device{} && target.numel() > 0) {
      const Tensor classes = contiguous(target);
      call.out[0] = g.dtype() == DType::kF64 ? fast<double>(g, classes, dim)
                                             : fast<float>(g, classes, dim);
      return;
    }
    const Tensor counts = ne(target, ignored_);
    const Tensor share = reduction_ == Reduction::kMean ? div(g, sum(to(counts, g.dtype()))) : g;
    const Tensor less = ops::where(counts, neg(share), zeros({}, g.dtype(), g.device()));
    const Tensor places = masked_fill(target, eq(target, ignored_), 0);
    const Tensor nothing = zeros({}, g.dtype(), g.device()).expand(input_.sizes());
    call.out[0] = scatter_add(nothing, dim, places.unsqueeze(dim), less.unsqueeze(dim));
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return ops::nll_loss(tangents[0], target_.get(*this), reduction_, ignored_);
  }

 private:
  template <typename T>
  Tensor fast(const Tensor& gradient, const Tensor& target, std::int64_t dim) const {
    const std::vector<T> shares = shares_of<T>(gradient, target, reduction_, ignored_);
    const Tensor out = zeros(input_.sizes(), gradient.dtype());
    const std::int64_t classes = out.size(dim), inner = out.stride(dim);
    const auto* wanted = target.const_data_ptr<std::int64_t>();
    const auto item = static_cast<std::int64_t>(out.item_size());
    auto* const to = static_cast<char*>(out.data_ptr());
    for (std::int64_t i = 0; i < target.numel(); ++i) {
      if (wanted[i] == ignored_) continue;
      const T less = -shares[static_cast<std::size_t>(i)];
      const std::int64_t at = (i / inner * classes + wanted[i]) * inner + i % inner;
      tenon::detail::convert_elements(out.dtype(), to + at * item, dtype_of<T>(), &less, 1);
    }
    return out;
  }

  SavedTensor target_;
  InputShape input_;
  Reduction reduction_ = Reduction::kMean;
  std::int64_t ignored_ = 0;
};

class CrossEntropyNode final : public NodeOf<2> {
 public:
  const char* name() const override { return "cross_entropy"; }
  void save(std::uint32_t, const Tensor& logits, const Tensor& target, Reduction reduction,
            std::int64_t ignored, double smoothing) {
    logits_.save(logits);
    target_.save(target);
    reduction_ = reduction;
    ignored_ = ignored;
    smoothing_ = smoothing;
  }
  void release_saved() override {
    logits_.release();
    target_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor logits = logits_.get(*this), target = target_.get(*this);
    if (!formulas_recorded() && logits.numel() > 0 && logits.device() == Device{}) {
      const Tensor classes = contiguous(to(target, DType::kI64));
      call.out[0] = compute_dtype(logits.dtype()) == DType::kF64
                        ? fast<double>(call.grad(), contiguous(logits), classes)
                        : fast<float>(call.grad(), contiguous(logits), classes);
      return;
    }
    // As what the operator is made of.
    const Tensor inputs[] = {logits};
    call.out[0] = differentiate(
        [&](std::span<const Tensor> in) {
          return ops::detail::cross_entropy(in[0], target, reduction_, ignored_, smoothing_);
        },
        inputs, call.grad(), 1)[0];
  }

 private:
  // share (softmax - even), and less at the target, of dense logits [outer, classes, inner].
  template <typename T>
  Tensor fast(const Tensor& gradient, const Tensor& logits, const Tensor& target) const {
    const std::int64_t dim = logits.dim() == 1 ? 0 : 1;
    const std::int64_t count = target.numel(), classes = logits.size(dim);
    const std::int64_t outer = dim == 0 ? 1 : logits.size(0), inner = count / outer;
    const auto* wanted = target.const_data_ptr<std::int64_t>();
    const std::vector<T> shares = shares_of<T>(gradient, target, reduction_, ignored_);
    const T even = static_cast<T>(smoothing_ / static_cast<double>(classes));
    const T chosen = static_cast<T>(1 - smoothing_);
    if (inner == 1) return rows(logits, wanted, shares, even, chosen);
    const Tensor out = ops::softmax(to(logits, dtype_of<T>()), dim);
    T* data = out.data_ptr<T>();
    const std::int64_t plane = classes * inner;
    parallel_for(0, outer, std::max<std::int64_t>(1, 16384 / plane),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t o = begin; o < end; ++o) {
                     const T* share = shares.data() + o * inner;
                     for (T* row = data + o * plane; row < data + (o + 1) * plane; row += inner) {
#pragma GCC ivdep
                       for (std::int64_t i = 0; i < inner; ++i) {
                         const T slope = share[i] * (row[i] - even);
                         row[i] = share[i] == 0 ? T(0) : slope;
                       }
                     }
                     for (std::int64_t i = 0; i < inner; ++i)
                       if (share[i] != 0)
                         data[o * plane + wanted[o * inner + i] * inner + i] -= share[i] * chosen;
                   }
                 });
    return to(out, logits.dtype());
  }
  template <typename T>
  static Tensor rows(const Tensor& logits, const std::int64_t* wanted,
                     const std::vector<T>& shares, T even, T chosen) {
    const std::int64_t count = static_cast<std::int64_t>(shares.size());
    const std::int64_t classes = logits.numel() / count;
    const DType dtype = logits.dtype(), compute = dtype_of<T>();
    const auto functions = ops::cpu::row_functions(compute);
    const Tensor out = empty(logits.sizes(), dtype);
    const auto item = static_cast<std::int64_t>(logits.item_size());
    const std::int64_t wide_item = sizeof(T);
    const auto* from = static_cast<const char*>(logits.const_data_ptr());
    auto* to_rows = static_cast<char*>(out.data_ptr());
    const std::int64_t batch = std::max<std::int64_t>(1, 4096 / classes);
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (batch * classes));
    const auto some_rows = [&](std::int64_t first, std::int64_t rows, T* wide) {
      const char* in = from + first * classes * item;
      char* const out_rows = to_rows + first * classes * item;
      T* results = reinterpret_cast<T*>(out_rows);
      if (dtype != compute) {
        tenon::detail::convert_elements(compute, wide, dtype, in, rows * classes);
        in = reinterpret_cast<const char*>(wide);
        results = wide + batch * classes;
      }
      for (std::int64_t r = 0; r < rows; ++r)
        functions.softmax(results + r * classes, in + r * classes * wide_item, classes);
      for (std::int64_t r = 0; r < rows; ++r) {
        T* const row = results + r * classes;
        const T share = shares[static_cast<std::size_t>(first + r)];
        if (share == 0) {
          std::fill_n(row, classes, T(0));
          continue;
        }
        functions.scale(row, row, classes, share, -share * even);
        row[wanted[first + r]] -= share * chosen;
      }
      if (dtype != compute)
        tenon::detail::convert_elements(dtype, out_rows, compute, results, rows * classes);
    };
    parallel_for(0, (count + batch - 1) / batch, grain, [&](std::int64_t begin, std::int64_t end) {
      // 16-bit rows are widened to the first half and computed in the second.
      std::vector<T> wide(dtype == compute ? 0 : static_cast<std::size_t>(2 * batch * classes));
      for (std::int64_t i = begin; i < end; ++i)
        some_rows(i * batch, std::min(batch, count - i * batch), wide.data());
    });
    return out;
  }

  SavedTensor logits_, target_;
  Reduction reduction_ = Reduction::kMean;
  std::int64_t ignored_ = kIgnoreIndex;
  double smoothing_ = 0;
};

}  // namespace

// The other losses are made of operators that have derivatives.
void install_loss() {
  set_derivative<ops::op::mse_loss, PairLossNode<Mse>>();
  set_derivative<ops::op::l1_loss, PairLossNode<L1>>();
  set_derivative<ops::op::huber_loss, PairLossNode<Huber>>();
  set_derivative<ops::op::binary_cross_entropy_with_logits, BinaryCrossEntropyNode>();
  set_derivative<ops::op::nll_loss, NllLossNode>();
  set_derivative<ops::op::cross_entropy, CrossEntropyNode>();
}

}  // namespace tenon::autograd
