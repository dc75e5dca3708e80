#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/training_rows.h"

namespace tenon::autograd {
namespace {

using namespace ops;

// As detail::cross_entropy, of recorded operators.
Tensor composed(const Tensor& logits, const Tensor& target, Reduction reduction,
                std::int64_t ignore_index, double smoothing) {
  const std::int64_t dim = logits.dim() == 1 ? 0 : 1;
  const Tensor log_shares = log_softmax(logits, dim);
  const Tensor picked = nll_loss(log_shares, target, Reduction::kNone, ignore_index);
  const Tensor counts = to(ne(target, ignore_index), logits.dtype());
  Tensor losses = picked;
  if (smoothing != 0) {
    const Tensor even = mul(neg(ops::mean(log_shares, dim)), counts);
    losses = add(mul(picked, 1 - smoothing), mul(even, smoothing));
  }
  if (reduction == Reduction::kNone) return losses;
  const Tensor total = ops::sum(losses);
  return reduction == Reduction::kSum ? total : div(total, ops::sum(counts));
}

// Keeps the logits alone. The gradient of a row is (softmax - one at the target) times that of its
// loss.
class CrossEntropyNode final : public NodeOf<2> {
 public:
  const char* name() const override { return "cross_entropy"; }
  void save(std::uint32_t, const Tensor& logits, const Tensor& target, Reduction reduction,
            std::int64_t ignore_index, double smoothing) {
    logits_.save(logits);
    target_.save(target);
    reduction_ = reduction;
    ignore_index_ = ignore_index;
    smoothing_ = smoothing;
  }
  void release_saved() override {
    logits_.release();
    target_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor logits = logits_.get(*this);
    const Tensor target = target_.get(*this);
    const bool direct = !formulas_recorded() && smoothing_ == 0 && logits.dim() == 2 &&
                        reduction_ != Reduction::kNone && logits.dtype() == DType::kF32 &&
                        target.dtype() == DType::kI64 && logits.device() == Device{};
    if (direct) {
      call.out[0] = direct_gradient(contiguous(logits), contiguous(target), call.grad());
      return;
    }
    const auto f = [&](std::span<const Tensor> in) {
      return composed(in[0], target, reduction_, ignore_index_, smoothing_);
    };
    call.out[0] = differentiate(f, {&logits, 1}, call.grad(), 1)[0];
  }

 private:
  Tensor direct_gradient(const Tensor& logits, const Tensor& target, const Tensor& g) const {
    const std::int64_t rows = logits.size(0), classes = logits.size(1);
    const Tensor out = empty(logits.sizes());
    const auto* wanted = target.const_data_ptr<std::int64_t>();
    std::int64_t counted = 0;
    for (std::int64_t i = 0; i < rows; ++i) counted += wanted[i] != ignore_index_ ? 1 : 0;
    const float share = reduction_ == Reduction::kMean ? 1 / static_cast<float>(counted) : 1.0f;
    const float scale = g.item<float>() * share;
    const cpu::TrainingRows& run = cpu::training_rows();
    const auto* x = logits.const_data_ptr<float>();
    auto* dx = out.data_ptr<float>();
    const std::int64_t grain = std::max<std::int64_t>(1, 8192 / std::max<std::int64_t>(1, classes));
    parallel_for(0, rows, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        float* const row = dx + i * classes;
        if (wanted[i] == ignore_index_) {
          std::fill_n(row, classes, 0.0f);
          continue;
        }
        const double log_sum = run.log_sum(x + i * classes, classes);
        run.shares(row, x + i * classes, classes, static_cast<float>(log_sum), scale);
        row[wanted[i]] -= scale;
      }
    });
    return out;
  }

  SavedTensor logits_, target_;
  Reduction reduction_ = Reduction::kMean;
  std::int64_t ignore_index_ = kIgnoreIndex;
  double smoothing_ = 0;
};

}  // namespace

void install_cross_entropy() { set_derivative<ops::op::cross_entropy, CrossEntropyNode>(); }

}  // namespace tenon::autograd
