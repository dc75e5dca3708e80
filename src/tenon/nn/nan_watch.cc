#include "tenon/nn/nan_watch.h"

#include <fmt/format.h>

#include <memory>
#include <span>
#include <utility>

#include "tenon/memory/tag.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/host_access.h"

namespace tenon::nn {
namespace {

struct Watching {
  std::optional<NanFinding> first;
};
thread_local Watching* watching = nullptr;

bool has(const Tensor& tensor, Tensor (*test)(const Tensor&)) {
  if (!tensor.defined() || !has_operators(tensor.device()) || !is_floating(tensor.dtype()) ||
      tensor.numel() == 0)
    return false;
  return ops::any(test(tensor.detach())).item<bool>();
}
bool has_nan(const Tensor& tensor) { return has(tensor, &ops::isnan); }
bool has_infinity(const Tensor& tensor) { return has(tensor, &ops::isinf); }

// Runs `look` over the tensors among a call's arguments or results.
template <typename Look, typename T>
void each_tensor(Look&& look, const T& argument) {
  if constexpr (std::is_same_v<T, Tensor>)
    look(argument);
  else if constexpr (std::is_same_v<T, std::span<const Tensor>>)
    for (const Tensor& tensor : argument) look(tensor);
  else if constexpr (std::is_same_v<T, std::pair<Tensor, Tensor>>)
    look(argument.first), look(argument.second);
}

template <typename T>
struct Watched;

template <typename Result, typename... Arguments>
struct Watched<ops::Operator<Result(Arguments...)>> {
  template <ops::Operator<Result(Arguments...)>& op>
  static Result call(Arguments... arguments) {
    const ops::KeyGuard unwatched{DispatchKey::kTracer};
    if (watching == nullptr || watching->first.has_value()) return op(arguments...);
    bool had_nan = false;
    bool had_infinity = false;
    // An operator that writes into its first argument reads it only where it stands again.
    int skip = std::is_same_v<Result, const Tensor&> ? 1 : 0;
    const auto look = [&](const Tensor& tensor) {
      if (skip-- > 0) return;
      had_nan = had_nan || has_nan(tensor);
      had_infinity = had_infinity || has_infinity(tensor);
    };
    (each_tensor(look, arguments), ...);
    if (had_nan) return op(arguments...);
    decltype(auto) result = op(arguments...);
    each_tensor(
        [&](const Tensor& tensor) {
          if (watching->first.has_value() || !has_nan(tensor)) return;
          const Tag tag = current_tag();
          const auto text = [](const char* word) { return std::string(word ? word : ""); };
          watching->first = NanFinding{op.name(), text(tag.call_site), text(tag.phase),
                                       to_string(tensor.sizes()), had_infinity};
        },
        result);
    return result;
  }
};

template <auto& op>
void watch() {
  op.set_kernel(DispatchKey::kTracer,
                &Watched<std::remove_cvref_t<decltype(op)>>::template call<op>);
}

// The tracer's kernels do nothing unless a thread asks for the tracer, so they stay.
void install() {
  namespace op = ops::op;
#define TENON_EACH(function)                                                                     \
  function(add) function(sub) function(mul) function(div) function(maximum) function(minimum)    \
  function(pow) function(atan2) function(fmod) function(remainder) function(floor_divide)        \
  function(square) function(relu) function(exp) function(exp2) function(expm1) function(log)     \
  function(log2) function(log10) function(log1p) function(sqrt) function(rsqrt)                  \
  function(reciprocal) function(sin) function(cos) function(tan) function(asin) function(acos)   \
  function(atan) function(sinh) function(cosh) function(tanh) function(erf) function(erfc)       \
  function(sigmoid) function(log_sigmoid) function(silu) function(mish) function(hardsigmoid)    \
  function(hardswish) function(neg) function(abs) function(sign) function(gelu_none)             \
  function(gelu_tanh)
#define TENON_WATCH(name) watch<op::name>();
#define TENON_WATCH_BOTH(name) \
  TENON_WATCH(name)            \
  TENON_WATCH(name##_into)
  TENON_EACH(TENON_WATCH_BOTH)
#undef TENON_EACH
#define TENON_EACH(function)                                                                    \
  function(leaky_relu) function(elu) function(softplus) function(hardtanh) function(clamp)      \
  function(sum) function(mean) function(prod) function(amax) function(amin) function(logsumexp) \
  function(norm) function(var) function(std) function(cumsum) function(cumprod) function(sort)  \
  function(topk) function(where) function(masked_fill) function(index_select) function(gather)  \
  function(scatter_add) function(index_add) function(embedding) function(cat) function(stack)   \
  function(flip) function(roll) function(repeat) function(pad) function(tril) function(triu)    \
  function(softmax) function(log_softmax) function(matmul) function(bmm) function(outer)        \
  function(addmm) function(linear) function(conv1d) function(conv2d) function(conv_transpose2d) \
  function(max_pool2d) function(avg_pool2d) function(adaptive_avg_pool2d) function(layer_norm)  \
  function(rms_norm) function(group_norm) function(batch_norm) function(nll_loss)               \
  function(cross_entropy) function(mse_loss) function(l1_loss) function(huber_loss)             \
  function(binary_cross_entropy_with_logits) function(scaled_dot_product_attention)
  TENON_EACH(TENON_WATCH)
#undef TENON_EACH
#undef TENON_WATCH_BOTH
#undef TENON_WATCH
}

}  // namespace

struct NanWatch::Inner {
  Watching state;
  Watching* previous = watching;
  ops::KeyGuard keys{{}, DispatchKey::kTracer};
};

NanWatch::NanWatch() : inner_(new Inner) {
  static const bool installed = (install(), true);
  static_cast<void>(installed);
  watching = &inner_->state;
}

NanWatch::~NanWatch() {
  watching = inner_->previous;
  delete inner_;
}

const std::optional<NanFinding>& NanWatch::finding() const { return inner_->state.first; }

std::string NanFinding::text() const {
  return fmt::format("{}{}{} made the first NaN, in a result of shape {}{}", op,
                     layer.empty() ? "" : " in " + layer, phase.empty() ? "" : " (" + phase + ")",
                     shape, from_infinity ? ", from an infinite operand" : "");
}

}  // namespace tenon::nn
