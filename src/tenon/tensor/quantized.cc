#include "tenon/tensor/quantized.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/factories.h"

namespace tenon {
namespace {

constexpr std::int64_t kWholeTensor = -1;
constexpr std::int64_t kGrain = 16'384;

// What a quantised tensor has besides its bytes.
struct Quantizer final : BackendMeta {
  Quantizer(Tensor its_scales, Tensor its_zero_points, std::int64_t its_axis)
      : scales(std::move(its_scales)), zero_points(std::move(its_zero_points)), axis(its_axis) {}
  IntrusivePtr<BackendMeta> clone() const override { return with(scales, zero_points, axis); }
  IntrusivePtr<BackendMeta> of_view(const Tensor& base, const Tensor& view,
                                    const ViewInfo& info) const override;

  static IntrusivePtr<BackendMeta> with(Tensor scales, Tensor zero_points, std::int64_t axis) {
    return make_intrusive<Quantizer>(std::move(scales), std::move(zero_points), axis);
  }

  const Tensor scales;       // f64 [channels], or [1] for the whole tensor
  const Tensor zero_points;  // i64, likewise
  const std::int64_t axis;
};

IntrusivePtr<BackendMeta> Quantizer::of_view(const Tensor& base, const Tensor& view,
                                             const ViewInfo& info) const {
  using Kind = ViewInfo::Kind;
  const auto& [a, b, c, asked_start, asked_end] = info.numbers;
  const auto moved_to = [&](std::int64_t to) { return with(scales, zero_points, to); };
  const auto of_channel = [&](std::int64_t channel) {
    return with(scales.slice(0, channel, channel + 1), zero_points.slice(0, channel, channel + 1),
                kWholeTensor);
  };
  if (axis == kWholeTensor || info.kind == Kind::kAlias) return clone();
  switch (info.kind) {
    case Kind::kSlice: {
      if (a != axis) return clone();
      const std::int64_t end = b + view.size(axis) * c;
      return with(contiguous(scales.slice(0, b, end, c)),
                  contiguous(zero_points.slice(0, b, end, c)), axis);
    }
    case Kind::kSelect:
      if (a != axis) return moved_to(axis - (a < axis ? 1 : 0));
      return of_channel(b);
    case Kind::kPermute:
      for (std::size_t d = 0; d < info.sizes.size(); ++d)
        if (info.sizes[d] == axis) return moved_to(static_cast<std::int64_t>(d));
      return {};
    case Kind::kUnsqueeze:
      return moved_to(axis + (a <= axis ? 1 : 0));
    case Kind::kSqueeze: {
      const auto goes = [&, wanted = a, one_dimension = b == 1](std::int64_t d) {
        return base.size(d) == 1 && (!one_dimension || d == wanted);
      };
      if (goes(axis)) return of_channel(0);
      std::int64_t before = 0;
      for (std::int64_t d = 0; d < axis; ++d) before += goes(d) ? 1 : 0;
      return moved_to(axis - before);
    }
    default:
      return {};
  }
}

const Quantizer* find_quantizer(const Tensor& t) {
  const ExtraMeta* extra = is_quantized(t) ? t.impl()->extra_meta() : nullptr;
  return extra == nullptr ? nullptr : static_cast<const Quantizer*>(extra->backend.get());
}

const Quantizer& quantizer_of(const Tensor& t, const char* what) {
  detail::check_defined(what, t);
  if (!is_quantized(t))
    throw InvalidArgument(fmt::format("{}: a tensor of {} is not quantised; quantize_per_tensor() "
                                      "or quantize_per_channel() makes one",
                                      what, dtype_name(t.dtype())));
  const Quantizer* quantizer = find_quantizer(t);
  if (quantizer == nullptr)
    throw InvalidArgument(fmt::format(
        "{}: the tensor of shape {} has no scale: it is a view that mixes channels, or was made "
        "without one; dequantize() first and take the view then",
        what, to_string(t.sizes())));
  return *quantizer;
}

const Quantizer& quantizer_of(const Tensor& t, bool per_channel, const char* what) {
  const Quantizer& quantizer = quantizer_of(t, what);
  if ((quantizer.axis != kWholeTensor) != per_channel)
    throw InvalidArgument(fmt::format("{}: the tensor is quantised per {}", what,
                                      per_channel ? "tensor" : "channel"));
  return quantizer;
}

float scale_of(const Quantizer& quantizer, std::int64_t channel) {
  return static_cast<float>(quantizer.scales.const_data_ptr<double>()[channel]);
}
int zero_of(const Quantizer& quantizer, std::int64_t channel) {
  return static_cast<int>(quantizer.zero_points.const_data_ptr<std::int64_t>()[channel]);
}

// Stretches of elements that have one channel: `count` times `inner` of them in a dense tensor.
struct Channels {
  Channels(const Quantizer& quantizer, IntList sizes) {
    if (quantizer.axis == kWholeTensor) {
      inner = numel_of(sizes);
      return;
    }
    const auto axis = static_cast<std::size_t>(quantizer.axis);
    count = sizes[axis];
    inner = numel_of(sizes.without_first(axis + 1));
  }
  std::int64_t count = 1, inner = 1;
};

// f(channel, begin, end) for stretches of a dense tensor of `sizes`.
template <typename F>
void for_each_stretch(const Quantizer& quantizer, IntList sizes, F&& f) {
  const Channels channels(quantizer, sizes);
  parallel_for(0, numel_of(sizes), kGrain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t stretch = begin / channels.inner;
      const std::int64_t stop = std::min(end, (stretch + 1) * channels.inner);
      f(stretch % channels.count, begin, stop);
      begin = stop;
    }
  });
}

// Dense, of the source's sizes.
Tensor quantized_integers(const Tensor& source, const Quantizer& quantizer) {
  const Tensor result = empty(source.sizes(), DType::kI8, source.device());
  if (source.is_meta() || source.numel() == 0) return result;
  const Tensor dense = contiguous(to(source.detach(), DType::kF32));
  const auto* in = dense.const_data_ptr<float>();
  auto* out = result.data_ptr<std::int8_t>();
  for_each_stretch(quantizer, source.sizes(), [&](std::int64_t channel, std::int64_t i,
                                                  std::int64_t end) {
    const float inverse = 1.0f / scale_of(quantizer, channel);
    const auto zero = static_cast<float>(zero_of(quantizer, channel));
    for (; i < end; ++i) {
      const float rounded = zero + std::nearbyint(in[i] * inverse);
      // In this order, NaN gives the smallest.
      out[i] = static_cast<std::int8_t>(std::min(127.0f, std::max(-128.0f, rounded)));
    }
  });
  return result;
}

void check_source(const Tensor& t, const char* what) {
  detail::check_defined(what, t);
  if (!is_floating(t.dtype()) || t.layout() != Layout::kStrided ||
      (t.device() != Device{} && !t.is_meta()))
    throw InvalidArgument(fmt::format(
        "{}: a {} tensor of {} on {}; a strided one of a floating-point dtype on the cpu is needed",
        what, layout_name(t.layout()), dtype_name(t.dtype()), to_string(t.device())));
}

Tensor quantized(const Tensor& t, Tensor scales, Tensor zero_points, std::int64_t axis,
                 const char* what) {
  check_source(t, what);
  for (std::int64_t i = 0; i < scales.numel(); ++i) {
    const auto scale = static_cast<float>(scales.const_data_ptr<double>()[i]);
    const std::int64_t zero = zero_points.const_data_ptr<std::int64_t>()[i];
    if (!(scale > 0) || !std::isfinite(1 / scale) || !std::isfinite(scale))
      throw InvalidArgument(fmt::format(
          "{}: scale {} of channel {}; it is positive, and float32 holds it and its inverse", what,
          scales.const_data_ptr<double>()[i], i));
    if (zero < -128 || zero > 127)
      throw InvalidArgument(fmt::format(
          "{}: zero point {} of channel {}; int8 holds -128 to 127", what, zero, i));
  }
  IntrusivePtr<BackendMeta> quantizer = Quantizer::with(scales, zero_points, axis);
  const Tensor result = quantized_integers(t, static_cast<const Quantizer&>(*quantizer))
                            .view_dtype(DType::kQI8);
  result.impl()->set_followed_backend_meta(std::move(quantizer));
  return result;
}

}  // namespace

Tensor quantize_per_tensor(const Tensor& t, double scale, std::int64_t zero_point) {
  return quantized(t, full({1}, scale, DType::kF64), full({1}, zero_point, DType::kI64),
                   kWholeTensor, "quantize_per_tensor");
}

Tensor quantize_per_channel(const Tensor& t, const Tensor& scales, const Tensor& zero_points,
                            std::int64_t axis) {
  constexpr const char* kWhat = "quantize_per_channel";
  detail::check_defined(kWhat, t, scales, zero_points);
  if (t.dim() == 0) throw InvalidArgument("quantize_per_channel: a 0-d tensor has no channels");
  const std::int64_t wrapped = wrap_dim(axis, t.dim(), kWhat);
  const DimVector wanted{t.size(wrapped)};
  if (!(scales.sizes() == wanted) || !(zero_points.sizes() == wanted) ||
      !is_floating(scales.dtype()) || !is_integral(zero_points.dtype()))
    throw InvalidArgument(fmt::format(
        "{}: scales {} of {}, zero points {} of {} for dimension {} of shape {}: one of each for "
        "each index, floating-point and integers",
        kWhat, to_string(scales.sizes()), dtype_name(scales.dtype()),
        to_string(zero_points.sizes()), dtype_name(zero_points.dtype()), axis,
        to_string(t.sizes())));
  return quantized(t, clone(to(scales.detach(), DType::kF64), MemoryFormat::kContiguous),
                   clone(to(zero_points.detach(), DType::kI64), MemoryFormat::kContiguous), wrapped,
                   kWhat);
}

Tensor dequantize(const Tensor& q) {
  const Quantizer& quantizer = quantizer_of(q, "dequantize");
  const Tensor result = empty(q.sizes(), DType::kF32, q.device());
  if (q.is_meta() || q.numel() == 0) return result;
  const Tensor dense = contiguous(q.view_dtype(DType::kI8));
  const auto* in = dense.const_data_ptr<std::int8_t>();
  auto* out = result.data_ptr<float>();
  for_each_stretch(quantizer, q.sizes(), [&](std::int64_t channel, std::int64_t i,
                                             std::int64_t end) {
    const float scale = scale_of(quantizer, channel);
    const int zero = zero_of(quantizer, channel);
    for (; i < end; ++i) out[i] = static_cast<float>(in[i] - zero) * scale;
  });
  return result;
}

Tensor int_repr(const Tensor& q) {
  detail::check_defined("int_repr", q);
  if (!is_quantized(q)) quantizer_of(q, "int_repr");
  return clone(q.view_dtype(DType::kI8));
}

bool is_quantized_per_channel(const Tensor& q) {
  return quantizer_of(q, "is_quantized_per_channel").axis != kWholeTensor;
}
double q_scale(const Tensor& q) {
  return quantizer_of(q, false, "q_scale").scales.const_data_ptr<double>()[0];
}
std::int64_t q_zero_point(const Tensor& q) {
  return quantizer_of(q, false, "q_zero_point").zero_points.const_data_ptr<std::int64_t>()[0];
}
const Tensor& q_per_channel_scales(const Tensor& q) {
  return quantizer_of(q, true, "q_per_channel_scales").scales;
}
const Tensor& q_per_channel_zero_points(const Tensor& q) {
  return quantizer_of(q, true, "q_per_channel_zero_points").zero_points;
}
std::int64_t q_per_channel_axis(const Tensor& q) {
  return quantizer_of(q, true, "q_per_channel_axis").axis;
}

void detail::quantize_into(const Tensor& target, const Tensor& source) {
  const Quantizer& quantizer = quantizer_of(target, "copy into a quantised tensor");
  check_source(source, "copy into a quantised tensor");
  const Tensor wide = source.sizes() == target.sizes() ? source : source.expand(target.sizes());
  copy_elements(target.view_dtype(DType::kI8), quantized_integers(wide, quantizer));
}

void detail::share_quantizer(const Tensor& copy, const Tensor& source) {
  if (const Quantizer* quantizer = find_quantizer(source))
    copy.impl()->set_followed_backend_meta(quantizer->clone());
}

void detail::check_new_sizes(const TensorImpl& tensor, IntList sizes) {
  if (tensor.dtype() != DType::kQI8 || tensor.sizes() == sizes) return;
  const auto& quantizer = static_cast<const Quantizer&>(*tensor.extra_meta()->backend);
  if (quantizer.axis != kWholeTensor)
    throw InvalidArgument(fmt::format(
        "a tensor of shape {} that is quantised per channel cannot become one of {}: its scales "
        "belong to dimension {}; dequantize() it first",
        to_string(tensor.sizes()), to_string(sizes), quantizer.axis));
}

bool detail::same_quantizer(const Tensor& a, const Tensor& b) {
  const Quantizer &p = quantizer_of(a, "copy"), &q = quantizer_of(b, "copy");
  if (p.axis != q.axis || p.scales.numel() != q.scales.numel()) return false;
  for (std::int64_t i = 0; i < p.scales.numel(); ++i)
    if (p.scales.const_data_ptr<double>()[i] != q.scales.const_data_ptr<double>()[i] ||
        p.zero_points.const_data_ptr<std::int64_t>()[i] !=
            q.zero_points.const_data_ptr<std::int64_t>()[i])
      return false;
  return true;
}

}  // namespace tenon
