// Operators on random shapes, dtypes and layouts. A case follows from its seed alone, so that
// figures can be had on cases that nothing was tuned on.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "random_inputs.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::bench {

using Inputs = std::vector<Tensor>;

struct RandomCase {
  std::string peer;  // the peer's name for it, with its numbers
  std::function<Tensor(const Inputs&)> ours;
  Inputs inputs;
  std::uint32_t constants = 0;  // bit i: input i has no gradient
};

inline RandomCase random_unary(Dice& d) {
  enum Numbers { kPositive, kFloat, kAny };
  struct Entry {
    const char* name;
    Tensor (*ours)(const Tensor&);
    Numbers of;
  };
#define TENON_OF(name, of) {#name, [](const Tensor& a) { return ops::name(a); }, of}
  static const std::vector<Entry> all = {
      TENON_OF(exp, kFloat),        TENON_OF(exp2, kFloat),       TENON_OF(expm1, kFloat),
      TENON_OF(log, kPositive),     TENON_OF(log2, kPositive),    TENON_OF(log10, kPositive),
      TENON_OF(log1p, kFloat),      TENON_OF(sqrt, kPositive),    TENON_OF(rsqrt, kPositive),
      TENON_OF(sin, kFloat),        TENON_OF(cos, kFloat),        TENON_OF(tan, kFloat),
      TENON_OF(asin, kFloat),       TENON_OF(acos, kFloat),       TENON_OF(atan, kFloat),
      TENON_OF(sinh, kFloat),       TENON_OF(cosh, kFloat),       TENON_OF(tanh, kFloat),
      TENON_OF(erf, kFloat),        TENON_OF(erfc, kFloat),       TENON_OF(sigmoid, kFloat),
      TENON_OF(floor, kFloat),      TENON_OF(ceil, kFloat),       TENON_OF(round, kFloat),
      TENON_OF(trunc, kFloat),      TENON_OF(reciprocal, kFloat), TENON_OF(neg, kAny),
      TENON_OF(abs, kAny),          TENON_OF(sign, kAny),         TENON_OF(square, kAny),
      TENON_OF(relu, kAny),         TENON_OF(isnan, kAny),        TENON_OF(logical_not, kAny),
      TENON_OF(isfinite, kAny),     TENON_OF(silu, kFloat),       TENON_OF(mish, kFloat),
      TENON_OF(gelu, kFloat),       TENON_OF(elu, kFloat),        TENON_OF(softplus, kFloat),
      TENON_OF(hardswish, kFloat),  TENON_OF(leaky_relu, kFloat)};
#undef TENON_OF
  const Entry e = d.pick(all);
  return {e.name, [f = e.ours](const Inputs& in) { return f(in[0]); },
          {matrix(d, kElements, d.any(e.of == kAny), e.of == kPositive ? 0.05 : -0.95)}};
}

inline RandomCase random_binary(Dice& d) {
  enum Numbers { kFloat, kInteger, kEither };
  struct Entry {
    const char* name;
    Tensor (*ours)(const Tensor&, const Tensor&);
    Numbers of;
  };
#define TENON_OF(name, of) \
  {#name, [](const Tensor& a, const Tensor& b) { return ops::name(a, b); }, of}
  static const std::vector<Entry> all = {
      TENON_OF(add, kEither),         TENON_OF(sub, kEither),          TENON_OF(mul, kEither),
      TENON_OF(div, kFloat),          TENON_OF(maximum, kEither),      TENON_OF(minimum, kEither),
      TENON_OF(eq, kEither),          TENON_OF(lt, kEither),           TENON_OF(ge, kEither),
      TENON_OF(logical_and, kEither), TENON_OF(logical_xor, kEither),  TENON_OF(pow, kFloat),
      TENON_OF(bitwise_and, kInteger), TENON_OF(bitwise_or, kInteger), TENON_OF(atan2, kFloat),
      TENON_OF(fmod, kEither),        TENON_OF(remainder, kEither),
      TENON_OF(floor_divide, kEither)};
#undef TENON_OF
  const Entry e = d.pick(all);
  const DType dtype = e.of == kInteger ? d.pick(kIntegers) : d.any(e.of == kEither);
  const std::int64_t rows = d.size(1, 3000), columns = d.size(2, kElements / rows);
  Inputs in = {matrix(d, rows, columns, dtype)};
  switch (d.between(0, 4)) {
    case 0:
      in.push_back(numbers({rows, 1}, dtype));
      break;
    case 1:
      in.push_back(numbers({columns}, dtype));
      break;
    case 2:
      in[0] = numbers({rows, 1}, dtype);
      in.push_back(numbers({1, columns}, dtype));
      break;
    default:
      in.push_back(matrix(d, rows, columns, dtype));
  }
  return {e.name, [f = e.ours](const Inputs& x) { return f(x[0], x[1]); }, in};
}

inline RandomCase random_reduction(Dice& d) {
  Tensor x = matrix(d, kElements, d.any(true));
  if (d.one_in(3)) x = numbers({d.size(2, 32), d.size(2, 128), d.size(2, 96)}, x.dtype());
  const bool floats = is_floating(x.dtype());
  const std::int64_t dim = d.between(0, x.dim() - 1);
  const auto of = [&](const char* name, auto f) {
    return RandomCase{
        fmt::format("{} {}", name, dim), [=](const Inputs& in) { return f(in[0]); }, {x}};
  };
  switch (d.between(0, floats ? 12 : 5)) {
    case 0:
      return of("sum_dim", [=](const Tensor& a) { return ops::sum(a, {dim}); });
    case 1:
      return of("amax_dim", [=](const Tensor& a) { return ops::amax(a, {dim}); });
    case 2:
      return of("argmax_dim", [=](const Tensor& a) { return ops::argmax(a, dim); });
    case 3:
      return of("prod_dim", [=](const Tensor& a) { return ops::prod(a, {dim}); });
    case 4:
      return of("cumsum", [=](const Tensor& a) { return ops::cumsum(a, dim); });
    case 5:
      return of("sum", [](const Tensor& a) { return ops::sum(a); });
    case 6:
      return of("mean_dim", [=](const Tensor& a) { return ops::mean(a, {dim}); });
    case 7:
      return of("var_dim", [=](const Tensor& a) { return ops::var(a, {dim}); });
    case 8:
      return of("norm_dim", [=](const Tensor& a) { return ops::norm(a, {dim}); });
    case 9:
      return of("logsumexp_dim", [=](const Tensor& a) { return ops::logsumexp(a, {dim}); });
    case 10:
      return of("cumprod", [=](const Tensor& a) { return ops::cumprod(a, dim); });
    case 11:
      return of("softmax", [=](const Tensor& a) { return ops::softmax(a, dim); });
    default:
      return of("log_softmax", [=](const Tensor& a) { return ops::log_softmax(a, dim); });
  }
}

inline RandomCase random_norm(Dice& d) {
  const DType dtype = d.pick(kFloats);
  if (d.one_in(2)) {
    const std::int64_t columns = d.size(2, 4096), rows = d.size(1, kElements / columns);
    const Inputs in = {numbers({rows, columns}, dtype), numbers({columns}, dtype),
                       numbers({columns}, dtype)};
    if (d.one_in(2))
      return {"layer_norm",
              [=](const Inputs& a) { return ops::layer_norm(a[0], {columns}, a[1], a[2]); }, in};
    return {"rms_norm", [=](const Inputs& a) { return ops::rms_norm(a[0], {columns}, a[1], 1e-5); },
            {in[0], in[1]}};
  }
  const Tensor x = images(d, kElements, dtype);
  const std::int64_t channels = x.size(1);
  const Tensor w = numbers({channels}, dtype), b = numbers({channels}, dtype);
  if (d.one_in(3)) {
    const std::int64_t groups = channels % 4 == 0 ? 4 : 1;
    return {fmt::format("group_norm {}", groups),
            [=](const Inputs& a) { return ops::group_norm(a[0], groups, a[1], a[2]); },
            {contiguous(x), w, b}};
  }
  const bool training = d.one_in(2) && x.numel() > channels;
  return {fmt::format("batch_norm {}", training ? 1 : 0),
          [=](const Inputs& a) { return ops::batch_norm(a[0], a[1], a[2], a[3], a[4], training); },
          {x, to(zeros({channels}), dtype), to(ones({channels}), dtype), w, b}, 0b110};
}

inline RandomCase random_window(Dice& d) {
  const Tensor x = images(d, kElements, d.pick(kFloats));
  const std::int64_t kernel = d.pick<std::int64_t>({2, 3, 3, 5}), stride = d.between(1, kernel);
  const std::int64_t padding = d.one_in(2) ? kernel / 2 : 0;
  const std::int64_t side = x.size(2) + 2 * padding < kernel ? 1 : d.between(1, 7);
  if (x.size(2) + 2 * padding < kernel || d.one_in(4))
    return {fmt::format("adaptive_avg_pool2d {}", side),
            [=](const Inputs& in) { return ops::adaptive_avg_pool2d(in[0], side); }, {x}};
  const std::string numbers_of = fmt::format(" {} {} {}", kernel, stride, padding);
  const ops::PoolOptions o{kernel, stride, padding};
  if (d.one_in(2))
    return {"max_pool2d" + numbers_of,
            [=](const Inputs& in) { return ops::max_pool2d(in[0], o); }, {x}};
  return {"avg_pool2d" + numbers_of, [=](const Inputs& in) { return ops::avg_pool2d(in[0], o); },
          {x}};
}

inline RandomCase random_convolution(Dice& d) {
  const DType dtype = d.pick(kProducts);
  const Tensor x = images(d, kElements / 2, dtype);
  const std::int64_t channels = x.size(1), kernel = d.pick<std::int64_t>({1, 3, 3, 5});
  const std::int64_t groups = d.one_in(4) ? channels : 1;
  const std::int64_t filters = groups > 1 ? channels : d.size(1, 128);
  const std::int64_t stride = d.between(1, 2), padding = kernel / 2;
  if (d.one_in(6)) {
    const Tensor line = numbers({x.size(0), channels, d.size(16, 2000)}, dtype);
    return {fmt::format("conv1d_of {} {}", stride, padding),
            [=](const Inputs& in) { return ops::conv1d(in[0], in[1], {}, {stride, padding}); },
            {line, numbers({filters, channels, kernel}, dtype)}};
  }
  if (d.one_in(6) && groups == 1)
    return {fmt::format("conv_transpose2d_of {} {}", stride, padding),
            [=](const Inputs& in) {
              return ops::conv_transpose2d(in[0], in[1], {}, {stride, padding});
            },
            {x, numbers({channels, filters, kernel, kernel}, dtype)}};
  Tensor w = numbers({filters, channels / groups, kernel, kernel}, dtype);
  if (!x.is_contiguous()) w = contiguous(w, MemoryFormat::kChannelsLast);
  return {fmt::format("conv2d_of {} {} 1 {}", stride, padding, groups),
          [=](const Inputs& in) {
            return ops::conv2d(in[0], in[1], {}, {stride, padding, 1, groups});
          },
          {x, w}};
}

inline RandomCase random_product(Dice& d) {
  const DType dtype = d.pick(kProducts);
  const std::int64_t m = d.size(1, 512), k = d.size(1, 1024), n = d.size(1, 1024);
  const Tensor a = d.one_in(3) ? numbers({k, m}, dtype).t() : numbers({m, k}, dtype);
  const Tensor b = d.one_in(3) ? numbers({n, k}, dtype).t() : numbers({k, n}, dtype);
  switch (d.between(0, 5)) {
    case 0:
      return {"matmul", [](const Inputs& in) { return ops::matmul(in[0], in[1]); },
              {a, numbers({k}, dtype)}};
    case 1:
      return {"linear", [](const Inputs& in) { return ops::linear(in[0], in[1], in[2]); },
              {a, numbers({n, k}, dtype), numbers({n}, dtype)}};
    case 2: {
      const std::int64_t batch = d.size(2, 128), inner = d.size(1, 96), side = d.size(1, 64);
      const Tensor y = d.one_in(2) ? numbers({batch, inner, side}, dtype)
                                   : numbers({batch, side, inner}, dtype).transpose(1, 2);
      return {"matmul", [](const Inputs& in) { return ops::matmul(in[0], in[1]); },
              {numbers({batch, d.size(1, 96), inner}, dtype), y}};
    }
    case 3: {
      const std::int64_t batch = d.size(1, 8), heads = d.size(1, 12), words = d.size(8, 256);
      const std::int64_t head = d.pick<std::int64_t>({32, 64, 80});
      const auto part = [&] { return numbers({batch, heads, words, head}, dtype); };
      return {"attention",
              [](const Inputs& in) {
                return ops::scaled_dot_product_attention(in[0], in[1], in[2]);
              },
              {part(), part(), part()}};
    }
    default:
      return {"matmul", [](const Inputs& in) { return ops::matmul(in[0], in[1]); }, {a, b}};
  }
}

inline RandomCase random_arrangement(Dice& d) {
  const DType dtype = d.any(true);
  const Tensor x = matrix(d, kElements, dtype);
  const std::int64_t dim = d.between(0, 1), rows = x.size(0), columns = x.size(1);
  switch (d.between(0, 8)) {
    case 0: {
      const std::int64_t batch = d.size(1, 16), words = d.size(2, 128), heads = d.size(2, 16);
      using Order = std::vector<std::int64_t>;
      const auto order = d.pick<Order>({{0, 2, 1, 3}, {0, 3, 1, 2}, {0, 2, 3, 1}, {1, 0, 2, 3}});
      return {"contiguous", [](const Inputs& in) { return contiguous(in[0]); },
              {numbers({batch, words, heads, d.size(4, 96)}, dtype).permute(order)}};
    }
    case 1:
      return {fmt::format("cat {}", dim), [=](const Inputs& in) { return ops::cat(in, dim); },
              {x, matrix(d, rows, columns, dtype), x}};
    case 2:
      return {fmt::format("stack {}", dim), [=](const Inputs& in) { return ops::stack(in, dim); },
              {x, matrix(d, rows, columns, dtype)}};
    case 3:
      return {fmt::format("flip {}", dim),
              [=](const Inputs& in) { return ops::flip(in[0], {dim}); }, {x}};
    case 4: {
      const std::int64_t shift = d.between(1, x.size(dim));
      return {fmt::format("roll {} {}", shift, dim),
              [=](const Inputs& in) { return ops::roll(in[0], {shift}, {dim}); }, {x}};
    }
    case 5:
      return {"repeat 2 3", [](const Inputs& in) { return ops::repeat(in[0], {2, 3}); }, {x}};
    case 6:
      return {"pad", [](const Inputs& in) { return ops::pad(in[0], {1, 1, 1, 1}); }, {x}};
    case 7:
      return {"tril", [](const Inputs& in) { return ops::tril(in[0]); }, {x}};
    default: {
      const DType target = d.any(true);
      return {fmt::format("to_{}", dtype_name(target)),
              [=](const Inputs& in) { return to(in[0], target); }, {x}};
    }
  }
}

inline RandomCase random_choice(Dice& d) {
  const DType dtype = d.any(true);
  const Tensor x = matrix(d, kElements, dtype);
  const std::int64_t dim = d.between(0, 1), rows = x.size(0), columns = x.size(1);
  const Tensor places = randint(0, x.size(dim), {d.size(1, 4000)});
  const Tensor few = places.narrow(0, 0, std::min(places.size(0), 2 * kElements / x.size(1 - dim)));
  const Tensor everywhere = randint(0, x.size(dim), {rows, columns});
  switch (d.between(0, 9)) {
    case 0:
      return {"where", [](const Inputs& in) { return ops::where(in[0], in[1], in[2]); },
              {numbers({rows, d.one_in(2) ? columns : 1}, DType::kBool), x,
               matrix(d, rows, columns, dtype)}};
    case 1:
      return {"masked_fill", [](const Inputs& in) { return ops::masked_fill(in[0], in[1], 3); },
              {x, numbers({rows, columns}, DType::kBool)}};
    case 2:
      return {fmt::format("index_select {}", dim),
              [=](const Inputs& in) { return ops::index_select(in[0], dim, in[1]); }, {x, few}};
    case 3:
      return {fmt::format("gather {}", dim),
              [=](const Inputs& in) { return ops::gather(in[0], dim, in[1]); }, {x, everywhere}};
    case 4:
      return {fmt::format("scatter_add {}", dim),
              [=](const Inputs& in) { return ops::scatter_add(in[0], dim, in[1], in[2]); },
              {x, everywhere, numbers({rows, columns}, dtype)}};
    case 5: {
      const std::int64_t n = few.size(0);
      return {fmt::format("index_add {}", dim),
              [=](const Inputs& in) { return ops::index_add(in[0], dim, in[1], in[2]); },
              {x, few, dim == 0 ? numbers({n, columns}, dtype) : numbers({rows, n}, dtype)}};
    }
    case 6:
      return {"embedding", [](const Inputs& in) { return ops::embedding(in[1], in[0]); },
              {contiguous(x), randint(0, rows, {d.size(1, 2 * kElements / columns)})}};
    case 7:
      return {"clamp", [](const Inputs& in) { return ops::clamp(in[0], 1, 50); }, {x}};
    case 8:
      return {"sort", [](const Inputs& in) { return ops::sort(in[0], -1).first; }, {x}};
    default: {
      const std::int64_t k = d.between(1, std::min<std::int64_t>(columns, 32));
      return {fmt::format("topk 1 {}", k),
              [=](const Inputs& in) { return ops::topk(in[0], k, 1).first; }, {x}};
    }
  }
}

inline RandomCase random_loss(Dice& d) {
  const DType dtype = d.pick(kFloats);
  const Tensor x = matrix(d, kElements, dtype);
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const Tensor y = matrix(d, rows, columns, dtype);
  switch (d.between(0, 5)) {
    case 0:
      return {"mse_loss", [](const Inputs& in) { return ops::mse_loss(in[0], in[1]); }, {x, y}};
    case 1:
      return {"l1_loss", [](const Inputs& in) { return ops::l1_loss(in[0], in[1]); }, {x, y}};
    case 2:
      return {"huber_loss", [](const Inputs& in) { return ops::huber_loss(in[0], in[1]); }, {x, y}};
    case 3:
      return {"binary_cross_entropy_with_logits",
              [](const Inputs& in) {
                return ops::binary_cross_entropy_with_logits(in[0], in[1]);
              },
              {x, y}};
    case 4:
      return {"nll_loss", [](const Inputs& in) { return ops::nll_loss(in[0], in[1]); },
              {x, randint(0, columns, {rows})}};
    default:
      return {"cross_entropy", [](const Inputs& in) { return ops::cross_entropy(in[0], in[1]); },
              {x, randint(0, columns, {rows})}};
  }
}

// "softmax 0 [100,20]/(1,100)f32": strides where they are not the dense ones.
inline std::string name_of(const RandomCase& c) {
  std::string text = c.peer;
  for (const Tensor& x : c.inputs) {
    text += fmt::format(" [{}]", fmt::join(x.sizes(), ","));
    if (!x.is_contiguous()) text += fmt::format("/({})", fmt::join(x.strides(), ","));
    text += dtype_name(x.dtype());
  }
  return text;
}

inline RandomCase random_case(std::uint64_t seed, std::uint64_t number) {
  static const std::vector<RandomCase (*)(Dice&)> families = {
      random_unary, random_binary,      random_binary,  random_reduction,   random_reduction,
      random_norm,  random_window,      random_product, random_convolution, random_arrangement,
      random_loss,  random_arrangement, random_choice,  random_choice};
  Dice dice(seed * 1'000'003 + number);
  return dice.pick(families)(dice);
}

// Whether operator and dtypes have gradients that say something.
inline bool has_gradients(const RandomCase& c) {
  static const std::vector<std::string> without = {
      "sign",        "floor",       "ceil",        "round",      "trunc",        "logical_not",
      "isnan",       "isfinite",    "eq",          "lt",         "ge",           "logical_and",
      "logical_xor", "bitwise_and", "bitwise_or",  "argmax_dim", "floor_divide"};
  const std::string name = c.peer.substr(0, c.peer.find(' '));
  if (std::find(without.begin(), without.end(), name) != without.end()) return false;
  if (name.starts_with("to_int") || name == "to_uint8" || name == "where") return false;
  return is_floating(c.inputs[0].dtype());
}

}  // namespace tenon::bench
