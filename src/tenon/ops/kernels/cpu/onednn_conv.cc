#include "tenon/ops/kernels/cpu/onednn_conv.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>

#include "tenon/base/parallel.h"
#include "tenon/tensor/factories.h"

// oneDNN runs on OpenMP's threads. Two of its functions, to tell it how many.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
}

namespace tenon::ops::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// OpenMP keeps the number for each calling thread.
class OpenMpThreads {
 public:
  OpenMpThreads() : previous_(omp_get_max_threads()) { omp_set_num_threads(num_threads()); }
  ~OpenMpThreads() { omp_set_num_threads(previous_); }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  const int previous_;
};

dnnl::engine& cpu_engine() {
  static auto& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory::dims dims_of(const Tensor& t) { return memory::dims(t.sizes().begin(), t.sizes().end()); }

memory::desc described(const memory::dims& dims, Tag tag) {
  return memory::desc(dims, memory::data_type::f32, tag);
}

// oneDNN memory over one of our tensors, which it keeps.
struct Held {
  Tensor tensor;
  memory view;
};

Held fresh(const memory::desc& desc) {
  Held held{empty({static_cast<std::int64_t>(desc.get_size())}, DType::kU8), {}};
  held.view = memory(desc, cpu_engine(), held.tensor.data_ptr());
  return held;
}

Held over(const Tensor& t, const memory::desc& desc) {
  return {t, memory(desc, cpu_engine(), const_cast<void*>(t.const_data_ptr()))};
}

// The operand in the layout that the convolution wants.
Held arranged(Held from, const memory::desc& wanted, dnnl::stream& stream) {
  if (from.view.get_desc() == wanted) return from;
  Held to = fresh(wanted);
  dnnl::reorder(from.view, to.view).execute(stream, from.view, to.view);
  return to;
}

memory::dims weight_dims(const Tensor& weight, std::int64_t groups) {
  memory::dims dims = dims_of(weight);
  if (groups == 1) return dims;
  dims[0] /= groups;
  dims.insert(dims.begin(), groups);
  return dims;
}

dnnl::convolution_forward::primitive_desc convolution(const Tensor& out, const Tensor& a,
                                                      const memory::dims& weight,
                                                      const Tensor& bias, const ConvOptions& o) {
  const memory::dims stride = {o.stride.height, o.stride.width};
  const memory::dims padding = {o.padding.height, o.padding.width};
  // oneDNN counts the elements between two taps.
  const memory::dims dilation = {o.dilation.height - 1, o.dilation.width - 1};
  const memory::desc of_bias = bias.defined() ? described(dims_of(bias), Tag::x) : memory::desc();
  const dnnl::convolution_forward::desc description(
      dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      described(dims_of(a), Tag::any), described(weight, Tag::any), of_bias,
      described(dims_of(out), Tag::any), stride, dilation, padding, padding);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return {description, attributes, cpu_engine()};
}

}  // namespace

bool onednn_conv2d(const Tensor& out, const Tensor& a, const Tensor& weight, const Tensor& bias,
                   const ConvOptions& options) {
  const OpenMpThreads threads;
  dnnl::stream stream(cpu_engine());
  const memory::dims weights = weight_dims(weight, options.groups);
  const auto chosen = convolution(out, a, weights, bias, options);
  if (std::string_view(chosen.impl_info_str()).substr(0, 3) != "jit") return false;
  const Held source =
      arranged(over(a, described(dims_of(a), Tag::nchw)), chosen.src_desc(), stream);
  const Tag weight_tag = options.groups == 1 ? Tag::oihw : Tag::goihw;
  const Held filter =
      arranged(over(weight, described(weights, weight_tag)), chosen.weights_desc(), stream);
  Held target = over(out, described(dims_of(out), Tag::nchw));
  const bool in_place = target.view.get_desc() == chosen.dst_desc();
  Held result = in_place ? target : fresh(chosen.dst_desc());
  const Held scratch = fresh(chosen.scratchpad_desc());
  std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, source.view},
                                               {DNNL_ARG_WEIGHTS, filter.view},
                                               {DNNL_ARG_DST, result.view},
                                               {DNNL_ARG_SCRATCHPAD, scratch.view}};
  if (bias.defined()) arguments[DNNL_ARG_BIAS] = over(bias, described(dims_of(bias), Tag::x)).view;
  dnnl::convolution_forward(chosen).execute(stream, arguments);
  if (!in_place) dnnl::reorder(result.view, target.view).execute(stream, result.view, target.view);
  stream.wait();
  return true;
}

}  // namespace tenon::ops::cpu
