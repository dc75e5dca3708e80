// How each operator of a vectors directory is called.
#include <fmt/format.h>

#include <functional>

#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "vector_case.h"

namespace tenon::command {
namespace {

// A case's inputs and arguments.
class Call {
 public:
  explicit Call(const VectorCase& test) : test_(test) {}

  const Tensor& in(std::size_t i) const {
    if (i >= test_.inputs.size())
      throw InvalidArgument(fmt::format("it has {} inputs", test_.inputs.size()));
    return test_.inputs[i];
  }
  Tensor optional(std::size_t i) const { return i < test_.inputs.size() ? in(i) : Tensor(); }
  const std::vector<Tensor>& all() const { return test_.inputs; }
  bool has(const char* name) const { return test_.arguments.contains(name); }
  const Json& argument(const char* name) const { return test_.arguments.at(name); }

  template <typename T>
  T get(const char* name) const {
    return argument(name).get<T>();
  }
  template <typename T>
  T get(const char* name, T otherwise) const {
    return has(name) ? get<T>(name) : otherwise;
  }
  std::int64_t number(const char* name) const { return get<std::int64_t>(name); }
  // A number or a list of them.
  std::vector<std::int64_t> list(const char* name) const {
    if (!has(name)) return {};
    return argument(name).is_array() ? get<std::vector<std::int64_t>>(name)
                                     : std::vector<std::int64_t>{number(name)};
  }
  ops::Pair pair(const char* name, std::int64_t otherwise) const {
    const std::vector<std::int64_t> values = list(name);
    if (values.empty()) return otherwise;
    return values.size() == 1 ? ops::Pair(values[0]) : ops::Pair(values[0], values[1]);
  }
  bool keepdim() const { return get("keepdim", false); }
  std::optional<Scalar> scalar(const char* name) const {
    if (!has(name)) return std::nullopt;
    return argument(name).is_number_integer() ? Scalar(number(name)) : Scalar(get<double>(name));
  }
  ops::Reduction reduction() const {
    const auto name = get<std::string>("reduction", "mean");
    return name == "none"  ? ops::Reduction::kNone
           : name == "sum" ? ops::Reduction::kSum
                           : ops::Reduction::kMean;
  }
  ops::ConvOptions conv() const {
    return {pair("stride", 1), pair("padding", 0), pair("dilation", 1),
            get<std::int64_t>("groups", 1), pair("output_padding", 0)};
  }
  ops::PoolOptions pool() const {
    return {pair("kernel_size", 1), pair("stride", 0), pair("padding", 0), true};
  }

 private:
  const VectorCase& test_;
};

using Results = std::vector<Tensor>;
using Run = std::function<Results(const Call&)>;
using Table = std::map<std::string, Run>;

Run one(std::function<Tensor(const Call&)> call) {
  return [call = std::move(call)](const Call& c) { return Results{call(c)}; };
}

template <typename Function>
Run unary(Function function) {
  return one([function](const Call& c) { return function(c.in(0)); });
}
template <typename Function>
Run binary(Function function) {
  return one([function](const Call& c) { return function(c.in(0), c.in(1)); });
}
template <typename Function>
Run reduce(Function function) {
  return one([function](const Call& c) { return function(c.in(0), c.list("dim"), c.keepdim()); });
}

void add_elementwise(Table& t) {
#define TENON_UNARY(name) t[#name] = unary([](const Tensor& a) { return ops::name(a); });
  TENON_UNARY(neg)
  TENON_UNARY(exp)
  TENON_UNARY(log) TENON_UNARY(sqrt) TENON_UNARY(rsqrt) TENON_UNARY(sin) TENON_UNARY(cos)
      TENON_UNARY(tanh) TENON_UNARY(sigmoid) TENON_UNARY(relu) TENON_UNARY(abs)
          TENON_UNARY(reciprocal) TENON_UNARY(square) TENON_UNARY(erf) TENON_UNARY(log1p)
              TENON_UNARY(expm1) TENON_UNARY(floor) TENON_UNARY(ceil) TENON_UNARY(round)
                  TENON_UNARY(sign) TENON_UNARY(silu) TENON_UNARY(logical_not) TENON_UNARY(tan)
                      TENON_UNARY(atan) TENON_UNARY(trunc)
#undef TENON_UNARY
#define TENON_BINARY(name) \
  t[#name] = binary([](const Tensor& a, const Tensor& b) { return ops::name(a, b); });
                          TENON_BINARY(mul) TENON_BINARY(div) TENON_BINARY(maximum)
                              TENON_BINARY(minimum) TENON_BINARY(pow) TENON_BINARY(atan2)
                                  TENON_BINARY(eq) TENON_BINARY(ne) TENON_BINARY(lt)
                                      TENON_BINARY(le) TENON_BINARY(gt) TENON_BINARY(ge)
                                          TENON_BINARY(logical_and) TENON_BINARY(logical_or)
                                              TENON_BINARY(logical_xor) TENON_BINARY(fmod)
                                                  TENON_BINARY(remainder) TENON_BINARY(floor_divide)
#undef TENON_BINARY
                                                      t["add"] = one([](const Call& c) {
                                                        return c.has("alpha")
                                                                   ? ops::add(c.in(0), c.in(1),
                                                                              *c.scalar("alpha"))
                                                                   : ops::add(c.in(0), c.in(1));
                                                      });
  t["sub"] = one([](const Call& c) {
    return c.has("alpha") ? ops::sub(c.in(0), c.in(1), *c.scalar("alpha"))
                          : ops::sub(c.in(0), c.in(1));
  });
  t["gelu"] = one([](const Call& c) {
    return ops::gelu(c.in(0), c.get<std::string>("approximate", "none") == "tanh");
  });
  t["leaky_relu"] =
      one([](const Call& c) { return ops::leaky_relu(c.in(0), c.get("negative_slope", 0.01)); });
  t["softplus"] = one([](const Call& c) {
    return ops::softplus(c.in(0), c.get("beta", 1.0), c.get("threshold", 20.0));
  });
  t["clamp"] =
      one([](const Call& c) { return ops::clamp(c.in(0), c.scalar("min"), c.scalar("max")); });
  t["where"] = one([](const Call& c) { return ops::where(c.in(0), c.in(1), c.in(2)); });
  t["masked_fill"] =
      one([](const Call& c) { return ops::masked_fill(c.in(0), c.in(1), *c.scalar("value")); });
  t["to"] =
      one([](const Call& c) { return to(c.in(0), parse_dtype(c.get<std::string>("dtype"))); });
}

void add_reductions(Table& t) {
#define TENON_REDUCE(name) \
  t[#name] = reduce([](const Tensor& a, IntList d, bool k) { return ops::name(a, d, k); });
  TENON_REDUCE(sum)
  TENON_REDUCE(mean)
  TENON_REDUCE(prod) TENON_REDUCE(amax) TENON_REDUCE(amin) TENON_REDUCE(any) TENON_REDUCE(all)
      TENON_REDUCE(logsumexp)
#undef TENON_REDUCE
          t["var"] =
              reduce([](const Tensor& a, IntList d, bool k) { return ops::var(a, d, 1, k); });
  t["std"] = reduce([](const Tensor& a, IntList d, bool k) { return ops::std(a, d, 1, k); });
  const auto dim = [](const Call& c) {
    return c.has("dim") ? std::optional(c.number("dim")) : std::nullopt;
  };
  t["argmax"] = one([=](const Call& c) { return ops::argmax(c.in(0), dim(c), c.keepdim()); });
  t["argmin"] = one([=](const Call& c) { return ops::argmin(c.in(0), dim(c), c.keepdim()); });
  t["cumsum"] = one([](const Call& c) { return ops::cumsum(c.in(0), c.number("dim")); });
  t["softmax"] = one([](const Call& c) { return ops::softmax(c.in(0), c.number("dim")); });
  t["log_softmax"] = one([](const Call& c) { return ops::log_softmax(c.in(0), c.number("dim")); });
  t["sort"] = [](const Call& c) {
    auto [values, indices] = ops::sort(c.in(0), c.number("dim"), c.get("descending", false));
    return Results{values, indices};
  };
  t["topk"] = [](const Call& c) {
    auto [values, indices] =
        ops::topk(c.in(0), c.number("k"), c.get<std::int64_t>("dim", -1), c.get("largest", true));
    return Results{values, indices};
  };
}

void add_losses_and_norms(Table& t) {
  t["cross_entropy"] = one([](const Call& c) {
    return ops::cross_entropy(c.in(0), c.in(1), c.reduction(),
                              c.get("ignore_index", ops::kIgnoreIndex),
                              c.get("label_smoothing", 0.0));
  });
  t["nll_loss"] = one([](const Call& c) {
    // "of" says what stands before the loss: log probabilities made of the input.
    const Tensor input = c.has("of") ? ops::log_softmax(c.in(0), 1) : c.in(0);
    return ops::nll_loss(input, c.in(1), c.reduction(), c.get("ignore_index", ops::kIgnoreIndex));
  });
  t["mse_loss"] = one([](const Call& c) { return ops::mse_loss(c.in(0), c.in(1), c.reduction()); });
  t["binary_cross_entropy_with_logits"] = one([](const Call& c) {
    return ops::binary_cross_entropy_with_logits(c.in(0), c.in(1), c.reduction());
  });
  t["layer_norm"] = one([](const Call& c) {
    return ops::layer_norm(c.in(0), c.list("normalized_shape"), c.optional(1), c.optional(2),
                           c.get("eps", 1e-5));
  });
  t["rms_norm"] = one([](const Call& c) {
    return ops::rms_norm(c.in(0), c.list("normalized_shape"), c.optional(1), c.get("eps", 1e-6));
  });
  t["group_norm"] = one([](const Call& c) {
    return ops::group_norm(c.in(0), c.number("num_groups"), c.optional(1), c.optional(2),
                           c.get("eps", 1e-5));
  });
  t["batch_norm_train"] = one([](const Call& c) {
    return ops::batch_norm(c.in(0), {}, {}, c.optional(1), c.optional(2), true, 0.1,
                           c.get("eps", 1e-5));
  });
  t["batch_norm_eval"] = one([](const Call& c) {
    return ops::batch_norm(c.in(0), c.in(1), c.in(2), c.in(3), c.in(4), false, 0.1,
                           c.get("eps", 1e-5));
  });
}

void add_products(Table& t) {
  t["matmul"] = binary([](const Tensor& a, const Tensor& b) { return ops::matmul(a, b); });
  t["bmm"] = binary([](const Tensor& a, const Tensor& b) { return ops::bmm(a, b); });
  t["outer"] = binary([](const Tensor& a, const Tensor& b) { return ops::outer(a, b); });
  t["addmm"] = one([](const Call& c) { return ops::addmm(c.in(0), c.in(1), c.in(2)); });
  t["linear"] = one([](const Call& c) { return ops::linear(c.in(0), c.in(1), c.optional(2)); });
  t["conv2d"] =
      one([](const Call& c) { return ops::conv2d(c.in(0), c.in(1), c.optional(2), c.conv()); });
  t["conv1d"] =
      one([](const Call& c) { return ops::conv1d(c.in(0), c.in(1), c.optional(2), c.conv()); });
  t["conv_transpose2d"] = one([](const Call& c) {
    return ops::conv_transpose2d(c.in(0), c.in(1), c.optional(2), c.conv());
  });
  t["max_pool2d"] = one([](const Call& c) { return ops::max_pool2d(c.in(0), c.pool()); });
  t["avg_pool2d"] = one([](const Call& c) { return ops::avg_pool2d(c.in(0), c.pool()); });
  t["adaptive_avg_pool2d"] = one(
      [](const Call& c) { return ops::adaptive_avg_pool2d(c.in(0), c.pair("output_size", 1)); });
  t["scaled_dot_product_attention"] = one([](const Call& c) {
    return ops::scaled_dot_product_attention(c.in(0), c.in(1), c.in(2), c.optional(3),
                                             c.get("is_causal", false));
  });
}

void add_indexing(Table& t) {
  t["embedding"] = one([](const Call& c) { return ops::embedding(c.in(0), c.in(1)); });
  t["index_select"] =
      one([](const Call& c) { return ops::index_select(c.in(0), c.number("dim"), c.in(1)); });
  t["gather"] = one([](const Call& c) { return ops::gather(c.in(0), c.number("dim"), c.in(1)); });
  t["scatter_add"] = one(
      [](const Call& c) { return ops::scatter_add(c.in(0), c.number("dim"), c.in(1), c.in(2)); });
  t["index_add"] =
      one([](const Call& c) { return ops::index_add(c.in(0), c.number("dim"), c.in(1), c.in(2)); });
  t["one_hot"] = one(
      [](const Call& c) { return ops::one_hot(c.in(0), c.get<std::int64_t>("num_classes", -1)); });
  t["cat"] = one([](const Call& c) { return ops::cat(c.all(), c.number("dim")); });
  t["stack"] = one([](const Call& c) { return ops::stack(c.all(), c.number("dim")); });
  t["split"] = [](const Call& c) { return c.in(0).split(c.number("split_size"), c.number("dim")); };
  t["chunk"] = [](const Call& c) { return c.in(0).chunk(c.number("chunks"), c.number("dim")); };
}

void add_shapes(Table& t) {
  t["reshape"] = one([](const Call& c) { return c.in(0).reshape(c.list("shape")); });
  t["flatten"] = one([](const Call& c) {
    return c.in(0).flatten(c.number("start_dim"), c.get<std::int64_t>("end_dim", -1));
  });
  t["squeeze"] = one([](const Call& c) { return c.in(0).squeeze(c.number("dim")); });
  t["unsqueeze"] = one([](const Call& c) { return c.in(0).unsqueeze(c.number("dim")); });
  t["expand"] = one([](const Call& c) { return c.in(0).expand(c.list("size")); });
  t["permute"] = one([](const Call& c) { return c.in(0).permute(c.list("dims")); });
  t["transpose"] =
      one([](const Call& c) { return c.in(0).transpose(c.number("dim0"), c.number("dim1")); });
  t["flip"] = one([](const Call& c) { return ops::flip(c.in(0), c.list("dims")); });
  t["tril"] = one([](const Call& c) { return ops::tril(c.in(0), c.number("diagonal")); });
  t["triu"] = one([](const Call& c) { return ops::triu(c.in(0), c.number("diagonal")); });
  t["diagonal"] = one([](const Call& c) {
    return c.in(0).diagonal(c.number("offset"), c.number("dim1"), c.number("dim2"));
  });
  t["slice"] = one([](const Call& c) {
    return c.in(0).slice(c.number("dim"), c.number("start"), c.number("end"), c.number("step"));
  });
  t["select"] =
      one([](const Call& c) { return c.in(0).select(c.number("dim"), c.number("index")); });
  t["narrow"] = one([](const Call& c) {
    return c.in(0).narrow(c.number("dim"), c.number("start"), c.number("length"));
  });
  t["roll"] =
      one([](const Call& c) { return ops::roll(c.in(0), c.list("shifts"), c.list("dim")); });
  t["repeat"] = one([](const Call& c) { return ops::repeat(c.in(0), c.list("repeats")); });
  t["pad"] = one([](const Call& c) { return ops::pad(c.in(0), c.list("pad")); });
  t["unfold"] = one([](const Call& c) {
    return c.in(0).unfold(c.number("dimension"), c.number("size"), c.number("step"));
  });
  t["movedim"] =
      one([](const Call& c) { return c.in(0).movedim(c.list("source"), c.list("destination")); });
}

// Several operators in one case; the case's formula says which.
void add_compositions(Table& t) {
  t["compose:mlp"] = one([](const Call& c) {
    const Tensor hidden = ops::gelu(ops::linear(c.in(0), c.in(1), c.in(2)));
    const Tensor target = to(ops::remainder(arange(c.in(0).size(0)), 4), c.in(0).device());
    return ops::cross_entropy(ops::linear(hidden, c.in(3), c.in(4)), target);
  });
  t["compose:shared"] = one([](const Call& c) {
    const Tensor& a = c.in(0);
    const Tensor products = ops::sum(a * a, 0) * ops::matmul(a.t(), a);
    return ops::sum(products) + ops::mean(ops::exp(a.slice(0, 1).slice(1, 0, a.size(1), 2)));
  });
  t["compose:inplace_view"] = one([](const Call& c) {
    const Tensor doubled = c.in(0) * 2;
    ops::mul_(doubled.select(0, 0), c.in(1));
    return ops::sum(doubled, 1);
  });
}

const Table& operators() {
  static const Table table = [] {
    Table t;
    add_elementwise(t);
    add_reductions(t);
    add_losses_and_norms(t);
    add_products(t);
    add_indexing(t);
    add_shapes(t);
    add_compositions(t);
    return t;
  }();
  return table;
}

}  // namespace

std::vector<Tensor> run_vector_case(const VectorCase& test) {
  const auto it = operators().find(test.op);
  if (it == operators().end())
    throw InvalidArgument(fmt::format("operator \"{}\" is not known", test.op));
  return it->second(Call(test));
}

}  // namespace tenon::command
