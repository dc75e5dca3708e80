#include "tenon/ops/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {
namespace {

// Which elements of one dimension a place looks at; `nominal` counts padding, too.
struct Span {
  std::int64_t begin, end, nominal;
};

// planes(place, spans) -> one element for each place of each plane.
template <typename SpanOf, typename Reduce>
Tensor pool(const char* what, const Tensor& a, std::int64_t height, std::int64_t width,
            SpanOf&& span_of, Reduce&& reduce) {
  const Device device = common_device(what, {&a});
  if (a.dim() != 3 && a.dim() != 4)
    throw InvalidArgument(
        fmt::format("{}: shape {}; take [N, C, H, W]", what, to_string(a.sizes())));
  if (!is_floating(a.dtype()))
    throw InvalidArgument(
        fmt::format("{}: of {}; convert it to floating point first", what, dtype_name(a.dtype())));
  if (height <= 0 || width <= 0)
    throw InvalidArgument(fmt::format("{}: the kernel is larger than the padded input {}", what,
                                      to_string(a.sizes())));
  DimVector sizes = a.sizes().to_vector();
  sizes[sizes.size() - 2] = height;
  sizes[sizes.size() - 1] = width;
  const DType compute = compute_dtype(a.dtype());
  const Tensor out = empty(sizes, compute, device);
  const Tensor dense = contiguous(to(a, compute));
  if (out.is_meta() || out.numel() == 0) return to(out, a.dtype());
  const std::int64_t in_height = a.size(-2), in_width = a.size(-1);
  const auto run = [&]<typename T>() {
    parallel_for(0, out.numel() / width, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const Span y = span_of(row % height, in_height, true);
        const T* plane = dense.const_data_ptr<T>() + row / height * in_height * in_width;
        for (std::int64_t x = 0; x < width; ++x)
          out.data_ptr<T>()[row * width + x] =
              reduce(plane, in_width, y, span_of(x, in_width, false));
      }
    });
  };
  compute == DType::kF64 ? run.template operator()<double>() : run.template operator()<float>();
  return to(out, a.dtype());
}

auto average(bool count_padding) {
  return [=]<typename T>(const T* plane, std::int64_t width, const Span& y, const Span& x) {
    T sum = 0;
    for (std::int64_t i = y.begin; i < y.end; ++i)
      for (std::int64_t j = x.begin; j < x.end; ++j) sum += plane[i * width + j];
    const std::int64_t count =
        count_padding ? y.nominal * x.nominal : (y.end - y.begin) * (x.end - x.begin);
    return sum / static_cast<T>(count);
  };
}

// Kernels at a stride over padded elements.
class Sliding {
 public:
  Sliding(const char* what, const PoolOptions& o) : o_(o) {
    if (o_.stride.height == 0) o_.stride.height = o.kernel.height;
    if (o_.stride.width == 0) o_.stride.width = o.kernel.width;
    const bool fits = o_.kernel.height >= 1 && o_.kernel.width >= 1 && o_.stride.height >= 1 &&
                      o_.stride.width >= 1 && o_.padding.height >= 0 && o_.padding.width >= 0 &&
                      2 * o_.padding.height <= o_.kernel.height &&
                      2 * o_.padding.width <= o_.kernel.width;
    if (!fits)
      throw InvalidArgument(
          fmt::format("{}: a kernel of {}x{}, stride {}x{}, padding {}x{}: sizes are at least 1 "
                      "and the padding "
                      "at most half the kernel",
                      what, o_.kernel.height, o_.kernel.width, o_.stride.height, o_.stride.width,
                      o_.padding.height, o_.padding.width));
  }

  std::int64_t places(std::int64_t size, bool of_height) const {
    const std::int64_t kernel = of_height ? o_.kernel.height : o_.kernel.width;
    const std::int64_t padding = of_height ? o_.padding.height : o_.padding.width;
    const std::int64_t reach = size + 2 * padding - kernel;
    return reach < 0 ? 0 : reach / (of_height ? o_.stride.height : o_.stride.width) + 1;
  }

  Span operator()(std::int64_t place, std::int64_t size, bool of_height) const {
    const std::int64_t kernel = of_height ? o_.kernel.height : o_.kernel.width;
    const std::int64_t padding = of_height ? o_.padding.height : o_.padding.width;
    const std::int64_t begin = place * (of_height ? o_.stride.height : o_.stride.width) - padding;
    // Padding counts up to its own end, not what a kernel looks at beyond it.
    const std::int64_t nominal = std::min(begin + kernel, size + padding) - begin;
    return {std::max<std::int64_t>(begin, 0), std::min(begin + kernel, size), nominal};
  }

 private:
  PoolOptions o_;
};

void check_planes(const char* what, const Tensor& a) {
  if (a.dim() < 2)
    throw InvalidArgument(
        fmt::format("{}: shape {}; take [N, C, H, W]", what, to_string(a.sizes())));
}

}  // namespace

Tensor detail::max_pool2d(const Tensor& a, const PoolOptions& o) {
  check_planes("max_pool2d", a);
  const Sliding sliding("max_pool2d", o);
  return pool("max_pool2d", a, sliding.places(a.size(-2), true), sliding.places(a.size(-1), false),
              sliding,
              []<typename T>(const T* plane, std::int64_t width, const Span& y, const Span& x) {
                T largest = -std::numeric_limits<T>::infinity();
                for (std::int64_t i = y.begin; i < y.end; ++i)
                  for (std::int64_t j = x.begin; j < x.end; ++j) {
                    const T value = plane[i * width + j];
                    if (value > largest || value != value) largest = value;
                  }
                return largest;
              });
}

Tensor detail::avg_pool2d(const Tensor& a, const PoolOptions& o) {
  check_planes("avg_pool2d", a);
  const Sliding sliding("avg_pool2d", o);
  return pool("avg_pool2d", a, sliding.places(a.size(-2), true), sliding.places(a.size(-1), false),
              sliding, average(o.count_padding));
}

Tensor detail::adaptive_avg_pool2d(const Tensor& a, const Pair& size) {
  check_planes("adaptive_avg_pool2d", a);
  return pool(
      "adaptive_avg_pool2d", a, size.height, size.width,
      [&](std::int64_t place, std::int64_t elements, bool of_height) {
        const std::int64_t places = of_height ? size.height : size.width;
        const std::int64_t begin = place * elements / places;
        const std::int64_t end = ((place + 1) * elements + places - 1) / places;
        return Span{begin, end, end - begin};
      },
      average(false));
}

}  // namespace tenon::ops
