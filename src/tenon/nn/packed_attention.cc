#include "tenon/nn/packed_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/attention.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/gemm.h"
#include "tenon/ops/kernels/cpu/softmax_rows.h"
#include "tenon/ops/kernels/cpu/training_rows.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/tensor/copy.h"

namespace tenon::nn {
namespace {

using ops::cpu::Matrix;

// From what attention is made of.
Tensor composed(const Tensor& qkv, std::int64_t heads, bool causal) {
  const std::int64_t batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  const Tensor all = qkv.view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
  const Tensor seen = ops::scaled_dot_product_attention(all.select(0, 0), all.select(0, 1),
                                                        all.select(0, 2), {}, causal);
  return seen.transpose(1, 2).reshape({batch, length, width});
}

// The heads of one tensor [N, L, parts * width], all in place.
struct Heads {
  Heads(const Tensor& qkv, std::int64_t heads)
      : batch(qkv.size(0)),
        length(qkv.size(1)),
        width(qkv.size(2) / 3),
        count(heads),
        size(width / heads),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(size)))) {}

  // Head `i` of all heads of the batch: its first element in a tensor of `parts` parts.
  std::int64_t offset(std::int64_t i, std::int64_t parts) const {
    return i / count * length * parts * width + i % count * size;
  }
  // The matrix [length, size] there.
  Matrix rows(const float* data, std::int64_t parts) const { return {data, parts * width, false}; }
  Matrix columns(const float* data, std::int64_t parts) const {
    return {data, parts * width, true};
  }
  void product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b,
               float* out, std::int64_t stride) const {
    ops::cpu::gemm(DType::kF32, m, n, k, a, b, 0, out, stride);
  }

  // shares[i][j] = softmax over j of q_i k_j / sqrt(size).
  void compute_shares(const float* head, float* shares, bool causal) const {
    product(length, length, size, rows(head, 3), columns(head + width, 3), shares, length);
    const auto softmax = ops::cpu::row_functions(DType::kF32).softmax;
    for (std::int64_t i = 0; i < length; ++i) {
      float* const row = shares + i * length;
      const std::int64_t seen = causal ? i + 1 : length;
      for (std::int64_t j = 0; j < seen; ++j) row[j] *= scale;
      softmax(row, row, seen);
      std::fill(row + seen, row + length, 0.0f);
    }
  }

  std::int64_t batch, length, width, count, size;
  float scale;
};

std::size_t square_bytes(const Heads& h) {
  return static_cast<std::size_t>(h.length * h.length) * sizeof(float);
}

// 16-bit floats are computed in f32, as by all operators.
Tensor forward(const Tensor& given, std::int64_t heads, bool causal) {
  if (given.dtype() != DType::kF32)
    return tenon::to(forward(tenon::to(given, DType::kF32), heads, causal), given.dtype());
  const Tensor qkv = contiguous(given);
  const Heads h(qkv, heads);
  const Tensor out = empty({h.batch, h.length, h.width});
  if (out.numel() == 0) return out;
  const auto* const from = qkv.const_data_ptr<float>();
  auto* const to = out.data_ptr<float>();
  ops::cpu::Workspaces workspaces(square_bytes(h), h.batch * h.count);
  parallel_for(0, h.batch * h.count, 1, [&](std::int64_t begin, std::int64_t end) {
    char* const room = workspaces.take();
    auto* const shares = reinterpret_cast<float*>(room);
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const head = from + h.offset(i, 3);
      h.compute_shares(head, shares, causal);
      h.product(h.length, h.size, h.length, {shares, h.length, false},
                h.rows(head + 2 * h.width, 3), to + h.offset(i, 1), h.width);
    }
    workspaces.give(room);
  });
  return out;
}

// With p the shares and o = p v:  dv = p^T do,  dp = do v^T,  ds = p (dp - rowsum(dp p)) scale,
// dq = ds k,  dk = ds^T q.
Tensor backward(const Tensor& given, const Tensor& gradient, std::int64_t heads, bool causal) {
  if (given.dtype() != DType::kF32)
    return tenon::to(backward(tenon::to(given, DType::kF32), tenon::to(gradient, DType::kF32),
                              heads, causal),
                     given.dtype());
  const Tensor qkv = contiguous(given);
  const Tensor g = contiguous(gradient);
  const Heads h(qkv, heads);
  const Tensor out = empty(qkv.sizes());
  if (out.numel() == 0) return out;
  const auto* const from = qkv.const_data_ptr<float>();
  const auto* const grads = g.const_data_ptr<float>();
  auto* const to = out.data_ptr<float>();
  ops::cpu::Workspaces workspaces(2 * square_bytes(h), h.batch * h.count);
  const auto softmax_gradient = ops::cpu::training_rows().softmax;
  parallel_for(0, h.batch * h.count, 1, [&](std::int64_t begin, std::int64_t end) {
    char* const room = workspaces.take();
    auto* const shares = reinterpret_cast<float*>(room);
    float* const slopes = shares + h.length * h.length;
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const q = from + h.offset(i, 3);
      const float* const grad = grads + h.offset(i, 1);
      float* const dq = to + h.offset(i, 3);
      const std::int64_t l = h.length;
      h.compute_shares(q, shares, causal);
      h.product(l, h.size, l, {shares, l, true}, h.rows(grad, 1), dq + 2 * h.width, 3 * h.width);
      h.product(l, l, h.size, h.rows(grad, 1), h.columns(q + 2 * h.width, 3), slopes, l);
      for (std::int64_t row = 0; row < l; ++row) {
        const std::int64_t seen = causal ? row + 1 : l;
        float* const slope = slopes + row * l;
        softmax_gradient(slope, slope, shares + row * l, seen, h.scale);
        std::fill(slope + seen, slope + l, 0.0f);
      }
      h.product(l, h.size, l, {slopes, l, false}, h.rows(q + h.width, 3), dq, 3 * h.width);
      h.product(l, h.size, l, {slopes, l, true}, h.rows(q, 3), dq + h.width, 3 * h.width);
    }
    workspaces.give(room);
  });
  return out;
}

constinit ops::Operator<Tensor(const Tensor&, std::int64_t, bool)> attention("packed_attention",
                                                                             &forward);

class PackedAttentionNode final : public autograd::NodeOf<1> {
 public:
  const char* name() const override { return "packed_attention"; }
  void save(std::uint32_t, const Tensor& qkv, std::int64_t heads, bool causal) {
    qkv_.save(qkv);
    heads_ = heads;
    causal_ = causal;
  }
  void release_saved() override { qkv_.release(); }
  void backward(const autograd::BackwardCall& call) override {
    const Tensor qkv = qkv_.get(*this);
    if (!autograd::formulas_recorded()) {
      call.out[0] = nn::backward(qkv, call.grad(), heads_, causal_);
      return;
    }
    const auto f = [this](std::span<const Tensor> in) { return composed(in[0], heads_, causal_); };
    call.out[0] = autograd::differentiate(f, {&qkv, 1}, call.grad(), 1)[0];
  }

 private:
  autograd::SavedTensor qkv_;
  std::int64_t heads_ = 1;
  bool causal_ = false;
};

const bool installed = (autograd::set_derivative<attention, PackedAttentionNode>(), true);

}  // namespace

Tensor packed_attention(const Tensor& qkv, std::int64_t heads, bool causal) {
  static_cast<void>(installed);
  if (qkv.dim() != 3 || heads < 1 || qkv.size(2) % (3 * heads) != 0)
    throw InvalidArgument(
        fmt::format("packed_attention: shape {} with {} heads; it takes "
                    "[N, L, 3 * heads * size]",
                    to_string(qkv.sizes()), heads));
  if (ops::compute_dtype(qkv.dtype()) != DType::kF32 || qkv.device() != Device{})
    return composed(qkv, heads, causal);
  return attention(qkv, heads, causal);
}

}  // namespace tenon::nn
