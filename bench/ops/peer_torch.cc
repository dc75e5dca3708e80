// PyTorch on our tensors' memory. Built where CMake finds it; a file apart from ours, since its
// headers define macros for everything.
#include "../torch_peer.h"

#include <map>
#include <sstream>

#include "peer.h"

namespace tenon::bench {
namespace {

using Tensors = std::vector<torch::Tensor>;
using Numbers = std::vector<std::int64_t>;
using Function = torch::Tensor (*)(const Tensors&, const Numbers&);

#define UNARY(name)                                                       \
  {                                                                       \
#name, [](const Tensors& in, const Numbers&) { return in[0].name(); } \
  }
#define BINARY(name)                                                                   \
  {                                                                                    \
#name, [](const Tensors& in, const Numbers&) { return torch::name(in[0], in[1]); } \
  }
#define ACTIVATION(name)                                                        \
  {                                                                             \
#name, [](const Tensors& in, const Numbers&) { return torch::name(in[0]); } \
  }

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> all = {
      UNARY(exp),
      UNARY(exp2),
      UNARY(expm1),
      UNARY(log),
      UNARY(log2),
      UNARY(log10),
      UNARY(log1p),
      UNARY(sqrt),
      UNARY(rsqrt),
      UNARY(reciprocal),
      UNARY(sin),
      UNARY(cos),
      UNARY(tan),
      UNARY(asin),
      UNARY(acos),
      UNARY(atan),
      UNARY(sinh),
      UNARY(cosh),
      UNARY(tanh),
      UNARY(erf),
      UNARY(erfc),
      UNARY(sigmoid),
      UNARY(floor),
      UNARY(ceil),
      UNARY(trunc),
      UNARY(round),
      UNARY(neg),
      UNARY(abs),
      UNARY(sign),
      UNARY(square),
      UNARY(relu),
      ACTIVATION(log_sigmoid),
      ACTIVATION(silu),
      ACTIVATION(mish),
      ACTIVATION(gelu),
      ACTIVATION(elu),
      ACTIVATION(softplus),
      ACTIVATION(leaky_relu),
      ACTIVATION(hardswish),
      ACTIVATION(isnan),
      ACTIVATION(isfinite),
      ACTIVATION(tril),
      BINARY(add),
      BINARY(sub),
      BINARY(mul),
      BINARY(div),
      BINARY(maximum),
      BINARY(minimum),
      BINARY(eq),
      BINARY(ge),
      BINARY(logical_and),
      BINARY(logical_xor),
      BINARY(bitwise_and),
      BINARY(bitwise_or),
      BINARY(mse_loss),
      BINARY(l1_loss),
      BINARY(nll_loss),
      BINARY(binary_cross_entropy_with_logits),
      BINARY(pow),
      BINARY(atan2),
      BINARY(fmod),
      BINARY(remainder),
      BINARY(floor_divide),
      BINARY(lt),
      BINARY(matmul),
      {"pow2", [](const Tensors& in, const Numbers&) { return in[0].pow(2); }},
      {"sum", [](const Tensors& in, const Numbers&) { return in[0].sum(); }},
      {"sum0", [](const Tensors& in, const Numbers&) { return in[0].sum(0); }},
      {"softmax", [](const Tensors& in, const Numbers& n) { return in[0].softmax(n[0]); }},
      {"log_softmax", [](const Tensors& in, const Numbers& n) { return in[0].log_softmax(n[0]); }},
      {"layer_norm",
       [](const Tensors& in, const Numbers&) {
         return torch::layer_norm(in[0], {in[0].size(-1)}, in[1], in[2]);
       }},
      {"cumsum", [](const Tensors& in, const Numbers& n) { return in[0].cumsum(n[0]); }},
      {"gather", [](const Tensors& in, const Numbers& n) { return in[0].gather(n[0], in[1]); }},
      {"scatter_add",
       [](const Tensors& in, const Numbers& n) { return in[0].scatter_add(n[0], in[1], in[2]); }},
      {"index_add",
       [](const Tensors& in, const Numbers& n) { return in[0].index_add(n[0], in[1], in[2]); }},
      {"index_select",
       [](const Tensors& in, const Numbers& n) { return in[0].index_select(n[0], in[1]); }},
      {"conv2d", [](const Tensors& in,
                    const Numbers& n) { return torch::conv2d(in[0], in[1], {}, n[0], n[1]); }},
      ACTIVATION(logical_not),
#define PEER(name, ...)                                                                        \
  {#name, [](const Tensors& in, [[maybe_unused]] const Numbers& n) { return __VA_ARGS__; }},
      PEER(clamp, in[0].clamp(1, 50))
      PEER(where, torch::where(in[0], in[1], in[2]))
      PEER(flip, in[0].flip({n[0]}))
      PEER(pad, torch::constant_pad_nd(in[0], {1, 1, 1, 1}))
      PEER(contiguous, in[0].contiguous())
      PEER(sum_dim, in[0].sum(n[0]))
      PEER(sum_02, in[0].sum(at::IntArrayRef({0, 2})))
      PEER(amax_dim, in[0].amax(n[0]))
      PEER(argmax_dim, in[0].argmax(n[0]))
      PEER(logsumexp_dim, in[0].logsumexp(n[0]))
      PEER(topk, std::get<0>(in[0].topk(n[1], n[0])))
      PEER(cross_entropy, torch::cross_entropy_loss(in[0], in[1]))
      PEER(group_norm, torch::group_norm(in[0], n[0], in[1], in[2]))
      PEER(batch_norm, torch::batch_norm(in[0], in[3], in[4], in[1], in[2], n[0] != 0, 0.1, 1e-5,
                                         false))
      PEER(embedding, torch::embedding(in[0], in[1]))
      PEER(index, in[0].index({in[1]}))
      PEER(linear, torch::linear(in[0], in[1], in[2]))
      PEER(conv2d_of, torch::conv2d(in[0], in[1], {}, n[0], n[1], n[2], n[3]))
      PEER(max_pool2d, torch::max_pool2d(in[0], n[0], n[1], n[2]))
      PEER(sort, std::get<0>(in[0].sort(-1)))
      PEER(any, in[0].any())
      PEER(norm_dim, in[0].norm(2, n[0]))
      PEER(to_float64, in[0].to(torch::kFloat64))
      PEER(to_float32, in[0].to(torch::kFloat32))
      PEER(to_float16, in[0].to(torch::kFloat16))
      PEER(to_bfloat16, in[0].to(torch::kBFloat16))
      PEER(to_int64, in[0].to(torch::kInt64))
      PEER(to_int32, in[0].to(torch::kInt32))
      PEER(to_int16, in[0].to(torch::kInt16))
      PEER(to_int8, in[0].to(torch::kInt8))
      PEER(to_uint8, in[0].to(torch::kUInt8))
      PEER(mean_dim, in[0].mean(n[0]))
      PEER(prod_dim, in[0].prod(n[0]))
      PEER(var_dim, in[0].var(at::IntArrayRef(&n[0], 1), true))
      PEER(cumprod, in[0].cumprod(n[0]))
      PEER(adaptive_avg_pool2d, torch::adaptive_avg_pool2d(in[0], {n[0], n[0]}))
      PEER(conv1d_of, torch::conv1d(in[0], in[1], {}, n[0], n[1]))
      PEER(conv_transpose2d_of, torch::conv_transpose2d(in[0], in[1], {}, n[0], n[1]))
      PEER(cat, torch::cat(in, n[0]))
      PEER(stack, torch::stack(in, n[0]))
      PEER(roll, in[0].roll(n[0], n[1]))
      PEER(repeat, in[0].repeat(n))
      PEER(masked_fill, in[0].masked_fill(in[1], 3))
#if TORCH_VERSION_MAJOR >= 2
      PEER(attention, at::scaled_dot_product_attention(in[0], in[1], in[2]))
      PEER(rms_norm, at::rms_norm(in[0], {in[0].size(-1)}, in[1], 1e-5))
#endif
      PEER(huber_loss, torch::huber_loss(in[0], in[1]))
      PEER(avg_pool2d, torch::avg_pool2d(in[0], n[0], n[1], n[2]))
#undef PEER
  };
  return all;
}

#undef UNARY
#undef BINARY
#undef ACTIVATION

int threads_of_peer = 1;

}  // namespace

void set_peer_threads(int threads) { threads_of_peer = threads; }

namespace {

struct Parsed {
  Function function;
  Numbers numbers;
};
Parsed parsed(const std::string& text) {
  std::istringstream words(text);
  std::string name;
  words >> name;
  const auto found = functions().find(name);
  if (found == functions().end())
    throw std::invalid_argument(name + ": not in " + torch_name() + ", or not in peer_torch.cc");
  Parsed made{found->second, {}};
  for (std::int64_t n; words >> n;) made.numbers.push_back(n);
  return made;
}

}  // namespace

Call peer_call(const std::string& text, const std::vector<Tensor>& inputs) {
  const Parsed call = parsed(text);
  Tensors in;
  {
    const c10::InferenceMode inference;
    for (const Tensor& input : inputs) in.push_back(borrowed(input));
  }
  return [=] {
    const c10::InferenceMode inference;
    set_torch_threads(threads_of_peer);
    const torch::Tensor made = call.function(in, call.numbers);
    asm volatile("" : : "r"(made.unsafeGetTensorImpl()) : "memory");
  };
}

Call peer_gradients(const std::string& text, const std::vector<Tensor>& inputs,
                    const std::vector<bool>& wanted) {
  const Parsed call = parsed(text);
  Tensors in, leaves;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    in.push_back(borrowed(inputs[i]));
    if (wanted[i]) leaves.push_back(in.back().requires_grad_());
  }
  const torch::Tensor ones = torch::ones_like(call.function(in, call.numbers).detach());
  return [=] {
    set_torch_threads(threads_of_peer);
    const Tensors made = torch::autograd::grad({call.function(in, call.numbers)}, leaves, {ones});
    asm volatile("" : : "r"(made[0].unsafeGetTensorImpl()) : "memory");
  };
}

}  // namespace tenon::bench
