#include "tenon/ops/kernels/cpu/onednn_conv.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/onednn_engine.h"
#include "tenon/ops/kernels/cpu/onednn_gemm.h"
#include "tenon/ops/kernels/cpu/onednn_shape.h"
#include "tenon/ops/kernels/cpu/openmp_threads.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops::cpu {
namespace {

using namespace onednn;

dnnl::primitive_attr with_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// oneDNN's other implementations multiply matrices of columns, or are slow references.
template <typename Description>
bool is_direct(const Description& chosen) {
  const std::string_view name = chosen.impl_info_str();
  return name.starts_with("jit") || name.starts_with("brg");
}

constexpr auto kDirect = dnnl::algorithm::convolution_direct;
using Forward = dnnl::convolution_forward::primitive_desc;

Forward forward(const ConvShape& s, bool bias, dnnl::prop_kind kind, Tag source, Tag target) {
  return describe<dnnl::convolution_forward>(
      with_scratchpad(), kind, kDirect, s.source_in(source), s.any_filter(s.source_type),
      bias ? s.bias_desc(s.source_type) : memory::desc(), s.target_in(target), s.stride,
      s.dilation, s.padding, s.padding_after);
}

// For itself oneDNN often chooses the order NHWC. Of planes, copies from and to it take longer than
// those of blocks of 16 channels; of many channels of f32 its kernels save more, unless they have
// one row. A few channels stay as they are. Channels-last images do, too, unless their channels
// fill many blocks: elements that are a power of two apart push each other out of the caches.
Forward inference(const ConvShape& s, bool bias) {
  constexpr std::int64_t kBlock = 16, kManyOfLast = 64, kMany = 128;
  const auto kind = dnnl::prop_kind::forward_inference;
  const std::int64_t channels = s.source[1];
  const auto direct = [&](Tag source, Tag target) -> std::optional<Forward> {
    const Forward chosen = forward(s, bias, kind, source, target);
    return is_direct(chosen) ? std::optional(chosen) : std::nullopt;
  };
  std::optional<Forward> found;
  const bool fills_blocks = channels % kBlock == 0;
  if (s.is_last && !(fills_blocks && channels >= kManyOfLast)) found = direct(Tag::nhwc, Tag::nhwc);
  const bool saves_more = s.source_type == kF32 && channels >= kMany && s.reach > 1;
  const bool is_blocked = channels < kBlock || (fills_blocks && !saves_more);
  if (!found && !s.is_grouped && is_blocked)
    found = direct(channels < kBlock ? Tag::nchw : Tag::nChw16c, Tag::nChw16c);
  return found ? *found : forward(s, bias, kind, Tag::any, Tag::any);
}

// What the descriptions of gradients want.
Forward training(ConvShape s, bool bias) {
  s.source_type = s.target_type;
  return forward(s, bias, dnnl::prop_kind::forward_training, Tag::any, Tag::any);
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

// Where threads cut a weight that they copy: into stretches of a dimension, whole blocks each. A
// small weight stays whole.
struct Cut {
  explicit Cut(const memory::desc& blocked) {
    constexpr std::size_t kSmall = 1 << 20;
    constexpr std::int64_t kStretches = 8;
    for (const int dim : {1, 0}) {
      const std::int64_t block = block_length(blocked, dim);
      const std::int64_t size = sizes_of(blocked)[static_cast<std::size_t>(dim)];
      const std::int64_t blocks = (size + block * kStretches - 1) / (block * kStretches);
      dimension = static_cast<std::size_t>(dim);
      length = blocked.get_size() < kSmall ? size : block * blocks;
      if (length < size) return;
    }
  }
  std::size_t dimension = 0;
  std::int64_t length = 0;
};

// The weight in the primitive's layout, for all parts.
struct Filter {
  Filter(const Tensor& weight, const Operand& operand)
      : held(operand.copied() ? empty({static_cast<std::int64_t>(operand.wanted.get_size())},
                                      DType::kU8)
                              : weight),
        view(on(operand.wanted, held)) {
    if (!operand.copied()) return;
    const Cut cut(operand.wanted);
    const std::int64_t size = sizes_of(operand.given)[cut.dimension];
    parallel_for(0, size, cut.length, [&](std::int64_t begin, std::int64_t end) {
      const OpenMpThreads one(1);
      dnnl::stream stream(cpu_engine());
      const auto stretch = [&](const memory::desc& whole) {
        memory::dims sizes = sizes_of(whole), offsets(sizes.size(), 0);
        sizes[cut.dimension] = end - begin;
        offsets[cut.dimension] = begin;
        return whole.submemory_desc(sizes, offsets);
      };
      memory from = on(stretch(operand.given), weight);
      memory to = on(stretch(operand.wanted), held);
      dnnl::reorder(from, to).execute(stream, from, to);
    });
  }
  static memory on(const memory::desc& desc, const Tensor& data) {
    return memory(desc, cpu_engine(), const_cast<void*>(data.const_data_ptr()));
  }
  Tensor held;
  memory view;
};

template <typename Plan>
using Plans = std::vector<std::shared_ptr<const Plan>>;

// A plan by what it is for, and for how many threads of oneDNN's own. Describing one takes oneDNN
// longer than a small convolution, so each thread keeps its last ones, until another takes a plan's
// place.
template <typename Plan>
std::shared_ptr<const Plan> known_plan(const ConvShape& shape, bool bias, int threads) {
  struct Known {
    ConvShape shape;
    bool bias;
    int threads;
    std::shared_ptr<const Plan> plan;
  };
  thread_local std::array<std::optional<Known>, 64> all;
  std::optional<Known>& known = all[shape.hash() % all.size()];
  if (!known || known->bias != bias || known->threads != threads || !(known->shape == shape)) {
    require_memory_for_code();
    known = Known{shape, bias, threads, std::make_shared<const Plan>(shape, bias)};
  }
  return known->plan;
}

// Calls work.run(number, part, plan, piece) for each part, as many together on several threads as
// work.prepare says, and work.finish after these. Parts of one shape have one plan. A single part
// runs on that many threads of oneDNN's own.
template <typename Plan, typename Work>
bool for_parts(const ConvShape& whole, const std::vector<Part>& parts, int threads_for_one,
               bool bias, Work&& work) {
  const int threads = parts.size() == 1 ? threads_for_one : 1;
  const OpenMpThreads here(threads);
  std::vector<ConvShape> shapes;
  Plans<Plan> plans;
  std::vector<std::size_t> plan_of;
  std::size_t room_bytes = 0;
  for (const Part& part : parts) {
    const ConvShape shape = whole.of(part);
    const auto known = std::find(shapes.begin(), shapes.end(), shape);
    plan_of.push_back(static_cast<std::size_t>(known - shapes.begin()));
    if (known != shapes.end()) continue;
    plans.push_back(known_plan<Plan>(shape, bias, threads));
    if (!plans.back()->direct) return false;
    room_bytes = std::max(room_bytes, plans.back()->room_bytes);
    shapes.push_back(shape);
  }
  const auto count = static_cast<std::int64_t>(parts.size());
  Workspaces workspaces(room_bytes, count);
  const std::int64_t together = work.prepare(plans, count);
  for (std::int64_t first = 0; first < count; first += together) {
    const std::int64_t last = std::min(first + together, count);
    parallel_for(first, last, 1, [&](std::int64_t begin, std::int64_t end) {
      const OpenMpThreads there(threads);
      for (std::int64_t i = begin; i < end; ++i) {
        char* const room = workspaces.take();
        Piece piece(room);
        const auto number = static_cast<std::size_t>(i);
        work.run(i, parts[number], *plans[plan_of[number]], piece);
        workspaces.give(room);
      }
    });
    work.finish(first, last);
  }
  return true;
}

// --- Forward.

struct ForwardPlan {
  ForwardPlan(const ConvShape& s, bool bias)
      : chosen(inference(s, bias)),
        direct(is_direct(chosen)),
        primitive(chosen),
        source(s.source_desc(), chosen.src_desc()),
        filter(s.filter_desc(s.source_type), chosen.weights_desc()),
        target(s.target_desc(), chosen.dst_desc()),
        scratch(chosen.scratchpad_desc()),
        room_bytes(source.copy_bytes() + target.copy_bytes() + align_up(scratch.get_size(), 64)) {}
  dnnl::convolution_forward::primitive_desc chosen;
  bool direct;
  dnnl::convolution_forward primitive;
  Operand source, filter, target;
  memory::desc scratch;
  std::size_t room_bytes;
};

// A filter in each layout that a plan wants.
struct Filters {
  template <typename Plan>
  void prepare(const Tensor& weight, const Plans<Plan>& plans) {
    for (const auto& plan : plans)
      if (find(plan->filter) == made.end()) made.emplace_back(weight, plan->filter);
  }
  const memory& of(const Operand& operand) const { return find(operand)->view; }
  std::vector<Filter>::const_iterator find(const Operand& operand) const {
    return std::find_if(made.begin(), made.end(), [&](const Filter& filter) {
      return filter.view.get_desc() == operand.wanted;
    });
  }
  std::vector<Filter> made;
};

struct ForwardWork {
  const ConvShape& shape;
  const Tensor &out, &a, &weight, &bias;
  Filters filters = {};

  std::int64_t prepare(const Plans<ForwardPlan>& plans, std::int64_t parts) {
    filters.prepare(weight, plans);
    return parts;
  }
  void finish(std::int64_t, std::int64_t) const {}
  void run(std::int64_t, const Part& part, const ForwardPlan& plan, Piece& piece) const {
    char* const to = shape.target_at(out, part);
    memory result = piece.to_write(plan.target, to);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, piece.read(plan.source, shape.source_at(a, part))},
        {DNNL_ARG_WEIGHTS, filters.of(plan.filter)},
        {DNNL_ARG_DST, result},
        {DNNL_ARG_SCRATCHPAD, piece.room_for(plan.scratch)}};
    if (bias.defined())
      arguments[DNNL_ARG_BIAS] =
          piece.view(shape.bias_desc(shape.source_type), bias.const_data_ptr());
    plan.primitive.execute(piece.stream(), arguments);
    piece.write_back(plan.target, result, to);
  }
};

// --- The gradient of the input.

dnnl::convolution_backward_data::primitive_desc backward_input(const ConvShape& s) {
  return describe_gradient<dnnl::convolution_backward_data>(
      with_scratchpad(), training(s, false), kDirect, s.source_in(Tag::any),
      s.any_filter(s.target_type), s.target_in(Tag::any), s.stride, s.dilation, s.padding,
      s.padding_after);
}

struct InputPlan {
  InputPlan(const ConvShape& s, bool)
      : chosen(backward_input(s)),
        direct(is_direct(chosen)),
        primitive(chosen),
        source(s.source_desc(), chosen.diff_src_desc()),
        filter(s.filter_desc(s.target_type), chosen.weights_desc()),
        target(s.target_desc(), chosen.diff_dst_desc()),
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
  const ConvShape& shape;
  const Tensor &grad_input, &grad_output, &weight;
  Filters filters = {};

  std::int64_t prepare(const Plans<InputPlan>& plans, std::int64_t parts) {
    filters.prepare(weight, plans);
    return parts;
  }
  void finish(std::int64_t, std::int64_t) const {}
  void run(std::int64_t, const Part& part, const InputPlan& plan, Piece& piece) const {
    char* const to = shape.source_at(grad_input, part);
    const char* const from = shape.target_at(grad_output, part);
    memory result = piece.to_write(plan.source, to);
    plan.primitive.execute(piece.stream(), {{DNNL_ARG_DIFF_DST, piece.read(plan.target, from)},
                                            {DNNL_ARG_WEIGHTS, filters.of(plan.filter)},
                                            {DNNL_ARG_DIFF_SRC, result},
                                            {DNNL_ARG_SCRATCHPAD, piece.room_for(plan.scratch)}});
    piece.write_back(plan.source, result, to);
  }
};

// --- The gradient of the weight and the bias.

dnnl::convolution_backward_weights::primitive_desc backward_weight(const ConvShape& s, bool bias) {
  return describe_gradient<dnnl::convolution_backward_weights>(
      with_scratchpad(), training(s, bias), kDirect, s.source_in(Tag::any), s.any_filter(kF32),
      bias ? s.bias_desc(kF32) : memory::desc(), s.target_in(Tag::any), s.stride, s.dilation,
      s.padding, s.padding_after);
}

struct WeightPlan {
  WeightPlan(const ConvShape& s, bool bias)
      : chosen(backward_weight(s, bias)),
        direct(is_direct(chosen)),
        primitive(chosen),
        source(s.source_desc(), chosen.src_desc()),
        filter(s.filter_desc(kF32), chosen.diff_weights_desc()),
        target(s.target_desc(), chosen.diff_dst_desc()),
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

// Each part has a gradient of its own, in our layout, until it is added: in order, so that no
// result depends on threads. That of the first part is the result.
struct WeightWork {
  const ConvShape& shape;
  const Tensor &grad_weight, &grad_bias, &grad_output, &a;
  std::int64_t together = 1;
  Tensor weights = {}, biases = {};  // of the parts that run together

  std::int64_t prepare(const Plans<WeightPlan>&, std::int64_t parts) {
    together = num_threads();
    const std::int64_t rows = parts <= together ? parts - 1 : together;
    weights = empty({rows, grad_weight.numel()});
    if (grad_bias.defined()) biases = empty({rows, grad_bias.numel()});
    return together;
  }
  void run(std::int64_t number, const Part& part, const WeightPlan& plan, Piece& piece) const {
    float* const to = of_part(grad_weight, weights, number);
    memory result = piece.to_write(plan.filter, to);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, piece.read(plan.source, shape.source_at(a, part))},
        {DNNL_ARG_DIFF_DST, piece.read(plan.target, shape.target_at(grad_output, part))},
        {DNNL_ARG_DIFF_WEIGHTS, result},
        {DNNL_ARG_SCRATCHPAD, piece.room_for(plan.scratch)}};
    if (grad_bias.defined())
      arguments[DNNL_ARG_DIFF_BIAS] =
          piece.view(shape.bias_desc(kF32), of_part(grad_bias, biases, number));
    plan.primitive.execute(piece.stream(), arguments);
    piece.write_back(plan.filter, result, to);
  }
  void finish(std::int64_t first, std::int64_t last) const {
    add_parts(grad_weight, weights, first, last);
    if (grad_bias.defined()) add_parts(grad_bias, biases, first, last);
  }

 private:
  float* of_part(const Tensor& sum, const Tensor& parts, std::int64_t number) const {
    if (number == 0) return sum.data_ptr<float>();
    const std::int64_t row = number < together ? number - 1 : number % together;
    return parts.data_ptr<float>() + row * sum.numel();
  }
  void add_parts(const Tensor& sum, const Tensor& parts, std::int64_t first,
                 std::int64_t last) const {
    first = std::max<std::int64_t>(first, 1);
    if (first == last) return;
    float* const to = sum.data_ptr<float>();
    parallel_for(0, sum.numel(), 16384, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t number = first; number < last; ++number) {
        const float* const from = of_part(sum, parts, number);
        for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
      }
    });
  }
};

// Fewer parts where their gradients would take much memory.
std::int64_t weight_part_length(std::int64_t images, std::size_t weight_bytes) {
  constexpr std::size_t kMostBytes = std::size_t{4} << 20;  // of all pieces together
  const auto most = static_cast<std::int64_t>(kMostBytes / std::max<std::size_t>(weight_bytes, 1));
  const std::int64_t pieces = std::clamp<std::int64_t>(most, 1, 8);
  return (images + pieces - 1) / pieces;
}

// oneDNN refuses steps that are much larger than images, or overflows.
bool has_usual_steps(const ConvOptions& o) {
  constexpr std::int64_t kMost = 1 << 15;
  return std::max({o.stride.height, o.stride.width, o.padding.height, o.padding.width,
                   o.dilation.height, o.dilation.width}) <= kMost;
}

}  // namespace

bool has_onednn_conv(DType dtype) {
  return dtype == DType::kF32 || (dtype == DType::kBF16 && has_onednn_gemm());
}

bool onednn_conv2d(const Tensor& out, const Tensor& a, const Tensor& weight, const Tensor& bias,
                   const ConvOptions& options) {
  if (!has_usual_steps(options)) return false;
  const ConvShape shape(a, weight, out, options);
  const std::int64_t rows = part_rows(shape, weight.numel());
  const auto parts = cut(shape, part_length(shape.images()), rows);
  return for_parts<ForwardPlan>(shape, parts, num_threads(), bias.defined(),
                                ForwardWork{shape, out, a, weight, bias});
}

bool onednn_conv2d_backward_input(const Tensor& grad_input, const Tensor& grad_output,
                                  const Tensor& weight, const ConvOptions& options) {
  // oneDNN would compute 16 channels; columns of a few take less.
  constexpr std::int64_t kFew = 8;
  if ((options.groups == 1 && weight.size(1) < kFew) || !has_usual_steps(options)) return false;
  const ConvShape shape(grad_input, weight, grad_output, options);
  const auto parts = cut(shape, part_length(shape.images()), shape.target[2]);
  return for_parts<InputPlan>(shape, parts, num_threads(), false,
                              InputWork{shape, grad_input, grad_output, weight});
}

bool onednn_conv2d_backward_weight(const Tensor& grad_weight, const Tensor& grad_bias,
                                   const Tensor& grad_output, const Tensor& a,
                                   const ConvOptions& options) {
  if (!has_usual_steps(options)) return false;
  const ConvShape shape(a, grad_weight, grad_output, options);
  WeightWork work{shape, grad_weight, grad_bias, grad_output, a};
  const std::int64_t length = weight_part_length(shape.images(), grad_weight.nbytes());
  return for_parts<WeightPlan>(shape, cut(shape, length, shape.target[2]), 1, grad_bias.defined(),
                               work);
}

}  // namespace tenon::ops::cpu
