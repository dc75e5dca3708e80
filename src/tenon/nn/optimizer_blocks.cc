// Plain loops, compiled for each instruction set and vectorised by the compiler.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/nn/optimizer_blocks.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <cmath>

#include "tenon/nn/optimizer_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::nn::HWY_NAMESPACE {
namespace {

template <typename T>
void sgd_block(void* p_, const void* g_, void* v_, std::int64_t count, const SgdNumbers& n,
               UpdatePart part) {
  auto* __restrict p = static_cast<T*>(p_);
  const auto* __restrict g = static_cast<const T*>(g_);
  auto* __restrict v = static_cast<T*>(v_);
  const T scale = static_cast<T>(n.scale), decay = static_cast<T>(n.weight_decay);
  const T rate = static_cast<T>(n.rate);
  if (v == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) p[i] -= rate * (scale * g[i] + decay * p[i]);
    return;
  }
  // The first velocity is the gradient itself.
  const T momentum = static_cast<T>(n.momentum);
  const T keep = n.first ? T(0) : momentum;
  const T take = n.first ? T(1) : static_cast<T>(n.one_minus_dampening);
  if (part == UpdatePart::kParameter) {
    for (std::int64_t i = 0; i < count; ++i) p[i] -= rate * v[i];
  } else if (part == UpdatePart::kState) {
    for (std::int64_t i = 0; i < count; ++i)
      v[i] = keep * v[i] + take * (scale * g[i] + decay * p[i]);
  } else if (n.nesterov) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T gradient = scale * g[i] + decay * p[i];
      const T velocity = keep * v[i] + take * gradient;
      v[i] = velocity;
      p[i] -= rate * (gradient + momentum * velocity);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const T velocity = keep * v[i] + take * (scale * g[i] + decay * p[i]);
      v[i] = velocity;
      p[i] -= rate * velocity;
    }
  }
}

template <typename T, bool kState, bool kParameter>
void adam_elements(T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v,
                   std::int64_t count, const AdamNumbers& n) {
  const T scale = static_cast<T>(n.scale), decay = static_cast<T>(n.gradient_decay);
  const T keep = static_cast<T>(n.parameter_factor);
  const T beta1 = static_cast<T>(n.beta1), rest1 = static_cast<T>(1 - n.beta1);
  const T beta2 = static_cast<T>(n.beta2), rest2 = static_cast<T>(1 - n.beta2);
  const T eps = static_cast<T>(n.eps), step = static_cast<T>(n.step);
  const T root = static_cast<T>(n.root_correction);
  for (std::int64_t i = 0; i < count; ++i) {
    const T parameter = p[i] * keep;
    T mean = m[i], square = v[i];
    if constexpr (kState) {
      const T gradient = scale * g[i] + decay * parameter;
      mean = beta1 * mean + rest1 * gradient;
      square = beta2 * square + rest2 * gradient * gradient;
      m[i] = mean;
      v[i] = square;
    }
    if constexpr (kParameter) p[i] = parameter - step * mean / (std::sqrt(square) / root + eps);
  }
}

template <typename T>
void adam_block(void* p_, const void* g_, void* m_, void* v_, std::int64_t count,
                const AdamNumbers& n, UpdatePart part) {
  const auto run = part == UpdatePart::kBoth    ? &adam_elements<T, true, true>
                   : part == UpdatePart::kState ? &adam_elements<T, true, false>
                                                : &adam_elements<T, false, true>;
  run(static_cast<T*>(p_), static_cast<const T*>(g_), static_cast<T*>(m_), static_cast<T*>(v_),
      count, n);
}

template <typename T>
double sum_of_squares_block(const void* g_, std::int64_t count) {
  const auto* g = static_cast<const T*>(g_);
  constexpr int kLanes = 16;  // a fixed order of additions on every machine
  double sums[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane)
      sums[lane] += static_cast<double>(g[i + lane]) * static_cast<double>(g[i + lane]);
  double total = 0;
  for (const double sum : sums) total += sum;
  for (; i < count; ++i) total += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  return total;
}

}  // namespace

OptimizerBlocks blocks_of(DType dtype) {
  if (dtype == DType::kF64)
    return {&sgd_block<double>, &adam_block<double>, &sum_of_squares_block<double>};
  return {&sgd_block<float>, &adam_block<float>, &sum_of_squares_block<float>};
}

}  // namespace tenon::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::nn {

HWY_EXPORT(blocks_of);

OptimizerBlocks optimizer_blocks(DType dtype) { return HWY_DYNAMIC_DISPATCH(blocks_of)(dtype); }

}  // namespace tenon::nn
#endif
