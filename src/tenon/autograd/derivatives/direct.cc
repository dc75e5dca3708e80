#include "tenon/autograd/derivatives/direct.h"

#include <algorithm>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/image_format.h"
#include "tenon/ops/kernels/cpu/onednn_conv.h"
#include "tenon/ops/kernels/cpu/training_rows.h"

namespace tenon::autograd::direct {
namespace {

bool is_plain(const Tensor& t) {
  return t.dtype() == DType::kF32 && t.device() == Device{} && t.numel() > 0;
}

// The same on a device without bytes: what a program needs there is what it needs here.
bool is_plain_or_meta(const Tensor& t) {
  return is_plain(t) || (t.is_meta() && t.dtype() == DType::kF32 && t.numel() > 0);
}

// Rows that one thread takes at a time: by sizes alone.
std::int64_t row_grain(std::int64_t length) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, length));
}

// Elements with a bit each that one thread takes at a time: whole bytes, whole vectors.
constexpr std::int64_t kBitGrain = 65536;

// The elements are seen by no other tensor, and lie as `like`'s do when it is contiguous.
bool can_overwrite(const Tensor& t) { return is_exclusive(t) && t.is_contiguous(); }

}  // namespace

namespace {

bool is_for_onednn(const Tensor& gradient, const Tensor& other) {
  return gradient.device() == Device{} && gradient.numel() > 0 && other.numel() > 0 &&
         gradient.dtype() == other.dtype() && ops::cpu::has_onednn_conv(other.dtype());
}

// Loops of ours are faster with vectors of channels.
bool has_single_channels(const Tensor& images, IntList weight, const ops::ConvOptions& o) {
  return ops::image_format(images) == MemoryFormat::kChannelsLast && weight[1] == 1 &&
         weight[0] == o.groups;
}

}  // namespace

Tensor conv_input(const Tensor& gradient, const Tensor& weight, IntList sizes,
                  const ops::ConvOptions& options) {
  const bool is_one_apart = options.stride.height == 1 && options.stride.width == 1;
  if (!is_for_onednn(gradient, weight) ||
      (is_one_apart && has_single_channels(gradient, weight.sizes(), options)))
    return {};
  const MemoryFormat format = ops::image_format(gradient);
  const Tensor out = empty(sizes, gradient.dtype(), {}, format);
  if (out.numel() == 0) return {};
  const Tensor g = contiguous(gradient, format), filter = contiguous(weight, format);
  return ops::cpu::onednn_conv2d_backward_input(out, g, filter, options) ? out : Tensor();
}

bool conv_weight(const Tensor& gradient, const Tensor& a, IntList sizes,
                 const ops::ConvOptions& options, bool with_bias, Tensor& weight, Tensor& bias) {
  if (!is_for_onednn(gradient, a) || has_single_channels(a, sizes, options)) return false;
  const Tensor of_weight = empty(sizes);
  const Tensor of_bias = with_bias ? empty({sizes[0]}) : Tensor();
  const MemoryFormat format = ops::image_format(a);
  if (!ops::cpu::onednn_conv2d_backward_weight(of_weight, of_bias, contiguous(gradient, format),
                                               contiguous(a, format), options))
    return false;
  weight = to(of_weight, a.dtype());
  if (with_bias) bias = of_bias;
  return true;
}

Tensor passing_bits(const Tensor& result) {
  constexpr std::int64_t kFew = 1024;
  if (tenon::detail::has_fewer_elements(result, kFew) || !is_plain_or_meta(result) ||
      !result.is_contiguous())
    return {};
  const Tensor bits = empty({(result.numel() + 7) / 8}, DType::kU8, result.device());
  if (bits.is_meta()) {
    const SymInt elements = tenon::detail::sym_numel(result);
    if (elements.is_symbolic())
      tenon::detail::give_sym_sizes(bits, {(elements + SymInt(7)) / SymInt(8)});
    return bits;
  }
  const auto run = ops::cpu::training_rows().passing_bits;
  const auto* from = result.const_data_ptr<float>();
  auto* to = bits.data_ptr<std::uint8_t>();
  parallel_for(0, result.numel(), kBitGrain, [&](std::int64_t begin, std::int64_t end) {
    run(to + begin / 8, from + begin, end - begin);
  });
  return bits;
}

Tensor where_passing(const Tensor& gradient, const Tensor& bits) {
  if (!is_plain_or_meta(gradient) || bits.numel() != (gradient.numel() + 7) / 8) return {};
  const bool is_ours = can_overwrite(gradient) || !gradient.is_contiguous();
  const Tensor g = contiguous(gradient);  // a copy is ours, too
  const Tensor out = is_ours ? g : empty(gradient.sizes(), DType::kF32, gradient.device());
  if (out.is_meta()) return out;
  const auto run = ops::cpu::training_rows().where_passing;
  const auto* dy = g.const_data_ptr<float>();
  const auto* kept = bits.const_data_ptr<std::uint8_t>();
  auto* dx = out.data_ptr<float>();
  parallel_for(0, g.numel(), kBitGrain, [&](std::int64_t begin, std::int64_t end) {
    run(dx + begin, dy + begin, kept + begin / 8, end - begin);
  });
  return out;
}

Tensor stopped_by(const Tensor& bits, IntList sizes) {
  const Tensor mask = empty(sizes, DType::kBool, bits.device());
  if (mask.is_meta()) return mask;
  const auto* kept = bits.const_data_ptr<std::uint8_t>();
  auto* to = mask.data_ptr<bool>();
  for (std::int64_t i = 0; i < mask.numel(); ++i) to[i] = (kept[i / 8] >> (i % 8) & 1) == 0;
  return mask;
}

namespace {

using Plane = ops::cpu::TrainingRows::Plane;

// Of a pooling without padding; false for others, where the input is smaller than the kernel, and
// for what the operator, which runs later, refuses.
bool make_plane(IntList sizes, const ops::PoolOptions& o, Plane& plane) {
  if (sizes.size() < 3 || o.kernel.height < 1 || o.kernel.width < 1 || o.stride.height < 0 ||
      o.stride.width < 0)
    return false;
  const auto stride = [](std::int64_t given, std::int64_t kernel) {
    return given == 0 ? kernel : given;
  };
  const std::int64_t height = sizes[sizes.size() - 2], width = sizes[sizes.size() - 1];
  if (o.padding.height != 0 || o.padding.width != 0) return false;
  if (height < o.kernel.height || width < o.kernel.width) return false;
  const std::int64_t down = stride(o.stride.height, o.kernel.height);
  const std::int64_t right = stride(o.stride.width, o.kernel.width);
  plane = {height,
           width,
           (height - o.kernel.height) / down + 1,
           (width - o.kernel.width) / right + 1,
           o.kernel.height,
           o.kernel.width,
           down,
           right};
  return true;
}

}  // namespace

Tensor max_pool_choices(const Tensor& a, const ops::PoolOptions& options) {
  Plane plane{};
  if (!is_plain_or_meta(a) || !make_plane(a.sizes(), options, plane) ||
      plane.kernel_height * plane.kernel_width > 256)
    return {};
  const Tensor from = contiguous(a);
  DimVector sizes = a.sizes().to_vector();
  sizes[sizes.size() - 2] = plane.out_height;
  sizes[sizes.size() - 1] = plane.out_width;
  const Tensor choices = empty(sizes, DType::kU8, a.device());
  if (choices.is_meta()) {
    const Labels labels = ops::labels::pool("max_pool2d", a, options);
    tenon::detail::give_labels("max_pool2d", choices, labels, true);
    return choices;
  }
  const std::int64_t size = plane.height * plane.width;
  const std::int64_t out_size = plane.out_height * plane.out_width;
  const auto run = ops::cpu::training_rows().max_pool_choices;
  const auto* x = from.const_data_ptr<float>();
  auto* to = choices.data_ptr<std::uint8_t>();
  parallel_for(0, a.numel() / size, row_grain(size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) run(to + i * out_size, x + i * size, plane);
  });
  return choices;
}

Tensor max_pool(const Tensor& gradient, const Tensor& choices, IntList sizes,
                const ops::PoolOptions& options) {
  Plane plane{};
  if (!is_plain_or_meta(gradient) || !make_plane(sizes, options, plane)) return {};
  const Tensor g = contiguous(gradient);
  const Tensor out = empty(sizes, DType::kF32, gradient.device());
  if (out.is_meta()) return out;
  const std::int64_t size = plane.height * plane.width;
  const std::int64_t out_size = plane.out_height * plane.out_width;
  const auto run = ops::cpu::training_rows().max_pool_gradient;
  const auto* dy = g.const_data_ptr<float>();
  const auto* from = choices.const_data_ptr<std::uint8_t>();
  auto* dx = out.data_ptr<float>();
  parallel_for(0, out.numel() / size, row_grain(size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      run(dx + i * size, dy + i * out_size, from + i * out_size, plane);
  });
  return out;
}

Tensor max_pool_places(const Tensor& choices, IntList sizes, const ops::PoolOptions& options) {
  Plane plane{};
  make_plane(sizes, options, plane);
  const Tensor places = empty(choices.sizes(), DType::kI64, choices.device());
  if (places.is_meta()) return places;
  const auto* from = choices.const_data_ptr<std::uint8_t>();
  auto* to = places.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < places.numel(); ++i) {
    const std::int64_t row = i / plane.out_width % plane.out_height, column = i % plane.out_width;
    to[i] = (row * plane.stride_height + from[i] / plane.kernel_width) * plane.width +
            column * plane.stride_width + from[i] % plane.kernel_width;
  }
  return places;
}

Tensor softmax(const Tensor& gradient, const Tensor& result, std::int64_t dim) {
  const bool is_last = dim == -1 || dim == result.dim() - 1;
  if (!is_plain_or_meta(gradient) || !is_plain_or_meta(result) || !is_last ||
      !result.is_contiguous())
    return {};
  const Tensor g = contiguous(gradient);
  const Tensor out = empty_like(result);
  if (out.is_meta()) return out;
  const std::int64_t length = result.size(-1);
  const auto run = ops::cpu::training_rows().softmax;
  const auto* dy = g.const_data_ptr<float>();
  const auto* y = result.const_data_ptr<float>();
  auto* dx = out.data_ptr<float>();
  parallel_for(0, result.numel() / length, row_grain(length),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   run(dx + i * length, dy + i * length, y + i * length, length, 1);
               });
  return out;
}

}  // namespace tenon::autograd::direct
