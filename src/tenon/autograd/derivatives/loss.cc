#include <cmath>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"
#include "tenon/base/parallel.h"

namespace tenon::autograd {
namespace {

using namespace ops;

// 2 (a - b), averaged or summed as the losses were.
class MseNode final : public NodeOf<2> {
 public:
  const char* name() const override { return "mse_loss"; }
  void save(std::uint32_t, const Tensor& a, const Tensor& b, Reduction reduction) {
    a_.save(a);
    b_.save(b);
    reduction_ = reduction;
  }
  void release_saved() override {
    a_.release();
    b_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor a = a_.get(*this), b = b_.get(*this);
    const Tensor difference = sub(a, b);
    const double count = static_cast<double>(difference.numel());
    const Tensor scale = ops::mul(call.grad(), reduction_ == Reduction::kMean ? 2 / count : 2.0);
    const Tensor slope = ops::mul(difference, scale);
    if (call.wants(0)) call.out[0] = match(slope, a.sizes(), a.dtype());
    if (call.wants(1)) call.out[1] = match(neg(slope), b.sizes(), b.dtype());
  }

 private:
  SavedTensor a_, b_;
  Reduction reduction_ = Reduction::kMean;
};

// softmax - target, row by row: logits [rows, classes], a share of the gradient for each row.
template <typename T>
void rows_of_cross_entropy(const T* logits, const std::int64_t* target, const T* shares, T* out,
                           std::int64_t rows, std::int64_t classes, std::int64_t ignored,
                           double smoothing) {
  const T even = static_cast<T>(smoothing / static_cast<double>(classes));
  const T chosen = static_cast<T>(1 - smoothing);
  parallel_for(0, rows, std::max<std::int64_t>(1, 8192 / classes),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   const T* in = logits + r * classes;
                   T* to_row = out + r * classes;
                   if (target[r] == ignored) {
                     std::fill_n(to_row, classes, T(0));
                     continue;
                   }
                   const T largest = *std::max_element(in, in + classes);
                   double total = 0;
                   for (std::int64_t c = 0; c < classes; ++c) {
                     to_row[c] = std::exp(in[c] - largest);
                     total += static_cast<double>(to_row[c]);
                   }
                   const T scale = static_cast<T>(1 / total);
                   for (std::int64_t c = 0; c < classes; ++c)
                     to_row[c] = shares[r] * (to_row[c] * scale - even);
                   to_row[target[r]] -= shares[r] * chosen;
                 }
               });
}

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
    const bool plain = !formulas_recorded() && logits.dim() == 2 && logits.numel() > 0 &&
                       logits.device().type == DeviceType::kCpu &&
                       (logits.dtype() == DType::kF32 || logits.dtype() == DType::kF64);
    if (plain) {
      call.out[0] = fast(call.grad(), contiguous(logits), contiguous(to(target, DType::kI64)));
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
  Tensor fast(const Tensor& gradient, const Tensor& logits, const Tensor& target) const {
    const std::int64_t rows = logits.size(0), classes = logits.size(1);
    const std::int64_t* classes_of = target.const_data_ptr<std::int64_t>();
    Tensor shares = gradient;
    if (reduction_ == Reduction::kMean) {
      const auto counted = rows - std::count(classes_of, classes_of + rows, ignored_);
      shares = ops::mul(shares, 1 / static_cast<double>(counted));
    }
    shares = contiguous(shares.expand({rows}));
    const Tensor out = empty(logits.sizes(), logits.dtype());
    const auto run = [&]<typename T>() {
      rows_of_cross_entropy(logits.const_data_ptr<T>(), classes_of, shares.const_data_ptr<T>(),
                            out.data_ptr<T>(), rows, classes, ignored_, smoothing_);
    };
    logits.dtype() == DType::kF64 ? run.template operator()<double>()
                                  : run.template operator()<float>();
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
  set_derivative<ops::op::mse_loss, MseNode>();
  set_derivative<ops::op::cross_entropy, CrossEntropyNode>();
}

}  // namespace tenon::autograd
