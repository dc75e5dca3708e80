#include "tenon/ops/complex.h"

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

using namespace ops;

// Functions of one complex tensor that are linear over the real numbers.
template <typename F>
class PartNode final : public NodeOf<1> {
 public:
  static constexpr bool kTakesComplex = true;
  const char* name() const override { return F::kName; }
  void save(std::uint32_t, const Tensor&) {}
  void backward(const BackwardCall& call) override { call.out[0] = F::transpose(call.grad()); }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return F::apply(tangents[0]);
  }
};

struct Conjugate {
  static constexpr const char* kName = "conj";
  static Tensor apply(const Tensor& t) { return conj(t); }
  static Tensor transpose(const Tensor& g) { return conj(g); }
};
struct RealPart {
  static constexpr const char* kName = "real";
  static Tensor apply(const Tensor& t) { return real(t); }
  static Tensor transpose(const Tensor& g) { return complex(g, zeros_like(g)); }
};
struct ImaginaryPart {
  static constexpr const char* kName = "imag";
  static Tensor apply(const Tensor& t) { return imag(t); }
  static Tensor transpose(const Tensor& g) { return complex(zeros_like(g), g); }
};

class ComplexNode final : public NodeOf<2> {
 public:
  const char* name() const override { return "complex"; }
  void save(std::uint32_t, const Tensor&, const Tensor&) {}
  void backward(const BackwardCall& call) override {
    if (call.wants(0)) call.out[0] = real(call.grad());
    if (call.wants(1)) call.out[1] = imag(call.grad());
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    const Tensor& x = tangents[0].defined() ? tangents[0] : tangents[1];
    return complex(tangents[0].defined() ? tangents[0] : zeros_like(x),
                   tangents[1].defined() ? tangents[1] : zeros_like(x));
  }
};

}  // namespace

void install_complex() {
  set_derivative<ops::op::conj, PartNode<Conjugate>>();
  set_derivative<ops::op::real, PartNode<RealPart>>();
  set_derivative<ops::op::imag, PartNode<ImaginaryPart>>();
  set_derivative<ops::op::complex, ComplexNode>();
}

}  // namespace tenon::autograd
