#include "tenon/ops/kernels/cpu/onednn_conv.h"

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/openmp_threads.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

dnnl::engine& cpu_engine() {
  static auto& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory::desc described(const memory::dims& dims, Tag tag) {
  return memory::desc(dims, memory::data_type::f32, tag);
}

// The geometry of one convolution over `images` images.
struct Shape {
  Shape(const Tensor& a, const Tensor& weight, const Tensor& out, const ConvOptions& o)
      : source(a.sizes().begin(), a.sizes().end()),
        filter(weight.sizes().begin(), weight.sizes().end()),
        target(out.sizes().begin(), out.sizes().end()),
        filter_tag(o.groups == 1 ? Tag::oihw : Tag::goihw),
        stride{o.stride.height, o.stride.width},
        padding{o.padding.height, o.padding.width},
        // oneDNN counts the elements between two taps.
        dilation{o.dilation.height - 1, o.dilation.width - 1} {
    if (o.groups == 1) return;
    filter[0] /= o.groups;
    filter.insert(filter.begin(), o.groups);
  }
  Shape with(std::int64_t images) const {
    Shape other = *this;
    other.source[0] = other.target[0] = images;
    return other;
  }
  std::int64_t images() const { return source[0]; }
  std::int64_t source_elements() const { return source[1] * source[2] * source[3]; }
  std::int64_t target_elements() const { return target[1] * target[2] * target[3]; }
  std::int64_t filters() const { return target[1]; }

  memory::dims source, filter, target;
  Tag filter_tag;
  memory::dims stride, padding, dilation;
};

dnnl::primitive_attr with_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

template <typename Description>
bool is_direct(const Description& chosen) {
  return std::string_view(chosen.impl_info_str()).substr(0, 3) == "jit";
}

dnnl::convolution_forward::primitive_desc forward(const Shape& s, bool bias, bool training) {
  const auto kind =
      training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  return {{kind, dnnl::algorithm::convolution_direct, described(s.source, Tag::any),
           described(s.filter, Tag::any), bias ? described({s.filters()}, Tag::x) : memory::desc(),
           described(s.target, Tag::any), s.stride, s.dilation, s.padding, s.padding},
          with_scratchpad(),
          cpu_engine()};
}

// One operand of a primitive: as our tensors have it, and as the primitive wants it.
struct Operand {
  Operand(const memory::desc& ours, const memory::desc& theirs) : given(ours), wanted(theirs) {
    if (!copied()) return;
    in = dnnl::reorder({cpu_engine(), given, cpu_engine(), wanted});
    out = dnnl::reorder({cpu_engine(), wanted, cpu_engine(), given});
  }
  bool copied() const { return given != wanted; }
  std::size_t copy_bytes() const { return copied() ? align_up(wanted.get_size(), 64) : 0; }

  memory::desc given, wanted;
  dnnl::reorder in, out;
};

// Hands out parts of a workspace, and brings operands into their layout there.
class Piece {
 public:
  explicit Piece(char* room) : at_(room), stream_(cpu_engine()) {}

  memory view(const memory::desc& desc, const void* data) const {
    return memory(desc, cpu_engine(), const_cast<void*>(data));
  }
  memory room_for(const memory::desc& desc) {
    char* const data = at_;
    at_ += align_up(desc.get_size(), 64);
    return view(desc, data);
  }
  memory read(const Operand& operand, const void* data) {
    const memory given = view(operand.given, data);
    if (!operand.copied()) return given;
    memory copy = room_for(operand.wanted);
    memory from = given;
    operand.in.execute(stream_, from, copy);
    return copy;
  }
  memory to_write(const Operand& operand, void* data) {
    return operand.copied() ? room_for(operand.wanted) : view(operand.given, data);
  }
  void write_back(const Operand& operand, memory& copy, void* data) {
    if (!operand.copied()) return;
    memory target = view(operand.given, data);
    operand.out.execute(stream_, copy, target);
  }
  dnnl::stream& stream() { return stream_; }

 private:
  char* at_;
  dnnl::stream stream_;
};

// The weight in the primitive's layout, for all pieces.
struct Filter {
  Filter(const Tensor& weight, const Operand& operand) {
    if (!operand.copied()) {
      held = weight;
      view = memory(operand.wanted, cpu_engine(), const_cast<void*>(weight.const_data_ptr()));
      return;
    }
    held = empty({static_cast<std::int64_t>(operand.wanted.get_size())}, DType::kU8);
    view = memory(operand.wanted, cpu_engine(), held.data_ptr());
    memory given(operand.given, cpu_engine(), const_cast<void*>(weight.const_data_ptr()));
    dnnl::stream stream(cpu_engine());
    operand.in.execute(stream, given, view);
  }
  Tensor held;
  memory view;
};

// Calls work(first image, plan, piece) for pieces of `length` images; the last one may have fewer
// and then a plan of its own. Plans are made by make_plan(shape of a piece). A
// single piece runs on that many threads of oneDNN's own.
template <typename MakePlan, typename Work>
bool for_pieces(const Shape& shape, std::int64_t length, int threads_for_one, MakePlan&& make_plan,
                Work&& work) {
  const std::int64_t images = shape.images();
  const std::int64_t pieces = (images + length - 1) / length;
  const int threads = pieces == 1 ? threads_for_one : 1;
  const OpenMpThreads here(threads);
  const std::int64_t rest = images % length;
  const auto plan = make_plan(shape.with(std::min(images, length)));
  if (!plan.direct) return false;
  const auto last = rest == 0 || pieces == 1 ? plan : make_plan(shape.with(rest));
  if (!last.direct) return false;
  Workspaces workspaces(std::max(plan.room_bytes, last.room_bytes), pieces);
  work.prepare(plan, last, pieces);
  parallel_for(0, pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    const OpenMpThreads there(threads);
    for (std::int64_t i = begin; i < end; ++i) {
      char* const room = workspaces.take();
      Piece piece(room);
      work.run(i, i * length, i + 1 == pieces ? last : plan, piece);
      workspaces.give(room);
    }
  });
  return true;
}

// Eight pieces or so: enough to even out threads, small enough to stay in the caches.
std::int64_t piece_length(std::int64_t images) { return (images + 7) / 8; }

// --- Forward.

struct ForwardPlan {
  ForwardPlan(const Shape& s, bool bias)
      : chosen(forward(s, bias, false)),
        direct(is_direct(chosen)),
        primitive(chosen),
        source(described(s.source, Tag::nchw), chosen.src_desc()),
        filter(described(s.filter, s.filter_tag), chosen.weights_desc()),
        target(described(s.target, Tag::nchw), chosen.dst_desc()),
        scratch(chosen.scratchpad_desc()),
        room_bytes(source.copy_bytes() + target.copy_bytes() + align_up(scratch.get_size(), 64)) {}
  dnnl::convolution_forward::primitive_desc chosen;
  bool direct;
  dnnl::convolution_forward primitive;
  Operand source, filter, target;
  memory::desc scratch;
  std::size_t room_bytes;
};

// A filter for the full pieces, and one for the last, which may want another layout.
struct Filters {
  template <typename Plan>
  void prepare(const Tensor& weight, const Plan& plan, const Plan& last) {
    made.emplace_back(weight, plan.filter);
    if (last.filter.wanted != plan.filter.wanted) made.emplace_back(weight, last.filter);
  }
  const memory& of(const Operand& operand) const {
    return made.front().view.get_desc() == operand.wanted ? made.front().view : made.back().view;
  }
  std::vector<Filter> made;
};

struct ForwardWork {
  const Shape& shape;
  const Tensor &out, &a, &weight, &bias;
  Filters filters = {};

  void prepare(const ForwardPlan& plan, const ForwardPlan& last, std::int64_t) {
    filters.prepare(weight, plan, last);
  }
  void run(std::int64_t, std::int64_t first, const ForwardPlan& plan, Piece& piece) const {
    float* const to = out.data_ptr<float>() + first * shape.target_elements();
    const float* const from = a.const_data_ptr<float>() + first * shape.source_elements();
    memory result = piece.to_write(plan.target, to);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, piece.read(plan.source, from)},
        {DNNL_ARG_WEIGHTS, filters.of(plan.filter)},
        {DNNL_ARG_DST, result},
        {DNNL_ARG_SCRATCHPAD, piece.room_for(plan.scratch)}};
    if (bias.defined())
      arguments[DNNL_ARG_BIAS] =
          piece.view(described({shape.filters()}, Tag::x), bias.const_data_ptr());
    plan.primitive.execute(piece.stream(), arguments);
    piece.write_back(plan.target, result, to);
  }
};

// --- The gradient of the input.

dnnl::convolution_backward_data::primitive_desc backward_input(const Shape& s) {
  return {{dnnl::algorithm::convolution_direct, described(s.source, Tag::any),
           described(s.filter, Tag::any), described(s.target, Tag::any), s.stride, s.dilation,
           s.padding, s.padding},
          with_scratchpad(),
          cpu_engine(),
          forward(s, false, true)};
}

struct InputPlan {
  explicit InputPlan(const Shape& s)
      : chosen(backward_input(s)),
        direct(is_direct(chosen)),
        primitive(chosen),
        source(described(s.source, Tag::nchw), chosen.diff_src_desc()),
        filter(described(s.filter, s.filter_tag), chosen.weights_desc()),
        target(described(s.target, Tag::nchw), chosen.diff_dst_desc()),
        scratch(chosen.scratchpad_desc()),
        room_bytes(source.copy_bytes() + target.copy_bytes() + align_up(scratch.get_size(), 64)) {}
  dnnl::convolution_backward_data::primitive_desc chosen;
  bool direct;
  dnnl::convolution_backward_data primitive;
  Operand source, filter, target;
  memory::desc scratch;
  std::size_t room_bytes;
};

struct InputWork {
  const Shape& shape;
  const Tensor &grad_input, &grad_output, &weight;
  Filters filters = {};

  void prepare(const InputPlan& plan, const InputPlan& last, std::int64_t) {
    filters.prepare(weight, plan, last);
  }
  void run(std::int64_t, std::int64_t first, const InputPlan& plan, Piece& piece) const {
    float* const to = grad_input.data_ptr<float>() + first * shape.source_elements();
    const float* const from = grad_output.const_data_ptr<float>() + first * shape.target_elements();
    memory result = piece.to_write(plan.source, to);
    plan.primitive.execute(piece.stream(), {{DNNL_ARG_DIFF_DST, piece.read(plan.target, from)},
                                            {DNNL_ARG_WEIGHTS, filters.of(plan.filter)},
                                            {DNNL_ARG_DIFF_SRC, result},
                                            {DNNL_ARG_SCRATCHPAD, piece.room_for(plan.scratch)}});
    piece.write_back(plan.source, result, to);
  }
};

// --- The gradient of the weight and the bias.

dnnl::convolution_backward_weights::primitive_desc backward_weight(const Shape& s, bool bias) {
  return {{dnnl::algorithm::convolution_direct, described(s.source, Tag::any),
           described(s.filter, Tag::any), bias ? described({s.filters()}, Tag::x) : memory::desc(),
           described(s.target, Tag::any), s.stride, s.dilation, s.padding, s.padding},
          with_scratchpad(),
          cpu_engine(),
          forward(s, bias, true)};
}

struct WeightPlan {
  WeightPlan(const Shape& s, bool bias)
      : chosen(backward_weight(s, bias)),
        direct(is_direct(chosen)),
        primitive(chosen),
        source(described(s.source, Tag::nchw), chosen.src_desc()),
        filter(described(s.filter, s.filter_tag), chosen.diff_weights_desc()),
        target(described(s.target, Tag::nchw), chosen.diff_dst_desc()),
        scratch(chosen.scratchpad_desc()),
        room_bytes(source.copy_bytes() + target.copy_bytes() + filter.copy_bytes() +
                   align_up(scratch.get_size(), 64)) {}
  dnnl::convolution_backward_weights::primitive_desc chosen;
  bool direct;
  dnnl::convolution_backward_weights primitive;
  Operand source, filter, target;
  memory::desc scratch;
  std::size_t room_bytes;
};

// Each piece has a gradient of its own, in our layout; they are added in order.
struct WeightWork {
  const Shape& shape;
  const Tensor &grad_weight, &grad_bias, &grad_output, &a;
  Tensor weights = {}, biases = {};  // by piece

  void prepare(const WeightPlan&, const WeightPlan&, std::int64_t pieces) {
    weights = pieces == 1 ? grad_weight.view({1, -1}) : empty({pieces, grad_weight.numel()});
    if (grad_bias.defined())
      biases = pieces == 1 ? grad_bias.view({1, -1}) : empty({pieces, grad_bias.numel()});
  }
  void run(std::int64_t number, std::int64_t first, const WeightPlan& plan, Piece& piece) const {
    const float* const from = a.const_data_ptr<float>() + first * shape.source_elements();
    const float* const gradient =
        grad_output.const_data_ptr<float>() + first * shape.target_elements();
    float* const to = weights.data_ptr<float>() + number * grad_weight.numel();
    memory result = piece.to_write(plan.filter, to);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, piece.read(plan.source, from)},
        {DNNL_ARG_DIFF_DST, piece.read(plan.target, gradient)},
        {DNNL_ARG_DIFF_WEIGHTS, result},
        {DNNL_ARG_SCRATCHPAD, piece.room_for(plan.scratch)}};
    if (grad_bias.defined())
      arguments[DNNL_ARG_DIFF_BIAS] =
          piece.view(described({shape.filters()}, Tag::x),
                     biases.const_data_ptr<float>() + number * shape.filters());
    plan.primitive.execute(piece.stream(), arguments);
    piece.write_back(plan.filter, result, to);
  }
};

// out[i] = parts[0][i] + parts[1][i] + ...
void add_parts(const Tensor& out, const Tensor& parts) {
  const std::int64_t count = out.numel();
  const float* const from = parts.const_data_ptr<float>();
  float* const to = out.data_ptr<float>();
  if (from == to) return;
  parallel_for(0, count, 16384, [&](std::int64_t begin, std::int64_t end) {
    std::copy(from + begin, from + end, to + begin);
    for (std::int64_t part = 1; part < parts.size(0); ++part) {
      const float* const more = from + part * count;
      for (std::int64_t i = begin; i < end; ++i) to[i] += more[i];
    }
  });
}

// Fewer pieces where their gradients would take much memory.
std::int64_t weight_piece_length(std::int64_t images, std::size_t weight_bytes) {
  constexpr std::size_t kMostBytes = std::size_t{4} << 20;  // of all pieces together
  const auto most = static_cast<std::int64_t>(kMostBytes / std::max<std::size_t>(weight_bytes, 1));
  const std::int64_t pieces = std::clamp<std::int64_t>(most, 1, 8);
  return (images + pieces - 1) / pieces;
}

}  // namespace

bool onednn_conv2d(const Tensor& out, const Tensor& a, const Tensor& weight, const Tensor& bias,
                   const ConvOptions& options) {
  const Shape shape(a, weight, out, options);
  const auto plan = [&](const Shape& piece) { return ForwardPlan(piece, bias.defined()); };
  return for_pieces(shape, piece_length(shape.images()), num_threads(), plan,
                    ForwardWork{shape, out, a, weight, bias});
}

bool onednn_conv2d_backward_input(const Tensor& grad_input, const Tensor& grad_output,
                                  const Tensor& weight, const ConvOptions& options) {
  const Shape shape(grad_input, weight, grad_output, options);
  const auto plan = [](const Shape& piece) { return InputPlan(piece); };
  return for_pieces(shape, piece_length(shape.images()), num_threads(), plan,
                    InputWork{shape, grad_input, grad_output, weight});
}

bool onednn_conv2d_backward_weight(const Tensor& grad_weight, const Tensor& grad_bias,
                                   const Tensor& grad_output, const Tensor& a,
                                   const ConvOptions& options) {
  const Shape shape(a, grad_weight, grad_output, options);
  const auto plan = [&](const Shape& piece) { return WeightPlan(piece, grad_bias.defined()); };
  WeightWork work{shape, grad_weight, grad_bias, grad_output, a};
  if (!for_pieces(shape, weight_piece_length(shape.images(), grad_weight.nbytes()), 1, plan, work))
    return false;
  add_parts(grad_weight, work.weights);
  if (grad_bias.defined()) add_parts(grad_bias, work.biases);
  return true;
}

}  // namespace tenon::ops::cpu
