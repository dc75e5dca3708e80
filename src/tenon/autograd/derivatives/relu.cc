#include "tenon/autograd/derivatives/direct.h"
#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/fused.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

using namespace ops;

struct Passed {
  static constexpr DeviceFunction kOnDevice = DeviceFunction::kReluBackward;
  template <typename T>
  static T fused(T g, T v, T, T) {
    return v <= 0 ? T(0) : g;
  }
};

// Keeps one bit for an element, where its results are dense f32 and many: so the result goes as
// soon as no other node needs it, and may be changed in place. Else it keeps the result.
class ReluNode final : public NodeOf<1> {
 public:
  static constexpr bool kSavesInputs = false;
  const char* name() const override { return "relu"; }
  void save(std::uint32_t, const Tensor& a, const UnaryNumbers& = {}) { input_.note(a); }
  void save_result(const Tensor& result) {
    const Tensor bits = direct::passing_bits(result);
    has_bits_ = bits.defined();
    if (!has_bits_) return kept_.save_result(result);
    sizes_ = result.sizes().to_vector();
    kept_.save(bits);
  }
  void release_saved() override {
    kept_.release();
    input_.release();
  }
  int ready_recompute() override { return has_bits_ ? 1 + input_.ready_recompute() : kNoRecipe; }
  Tensor recompute() const override { return ops::relu(input_.get(*this)); }
  void backward(const BackwardCall& call) override {
    const Tensor kept = kept_.get(*this);
    Tensor& g = call.grad();
    if (has_bits_ && !formulas_recorded()) {
      call.out[0] = direct::where_passing(g, kept);
      if (call.out[0].defined()) return;
    }
    if (has_bits_) {
      call.out[0] = masked_fill(g, direct::stopped_by(kept, sizes_), 0);
    } else if (!formulas_recorded() && is_floating(kept.dtype())) {
      call.out[0] = fused_derivative<Passed>(g, kept);
    } else {
      call.out[0] = masked_fill(g, le(kept, 0), 0);
    }
  }
  // Each element depends on its own alone: the derivative is its own transpose.
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    Tensor in = tangents[0];
    Tensor out;
    backward({&in, &out, 1});
    return out;
  }

 private:
  SavedTensor kept_, input_;
  DimVector sizes_;
  bool has_bits_ = false;
};

}  // namespace

void install_relu() {
  set_derivative<ops::op::relu, ReluNode>();
  set_into_derivative<ops::op::relu_into, ReluNode>();
}

}  // namespace tenon::autograd
