#include <algorithm>
#include <utility>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/conv_host.h"
#include "tenon/ops/kernels/cpu/channel_windows.h"
#include "tenon/ops/kernels/cpu/gemm.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/ops/reduce.h"
#include "tenon/ops/shape.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {
namespace {

// The windows of a group's channels as rows of a matrix, [kernel places, channels] each, and back.
template <typename T>
class Patches {
 public:
  Patches(const ConvWindow& w, std::int64_t group)
      : w_(w), group_(group), all_channels_(w.channels * w.options.groups) {}

  // The patches of places begin to end; places count through all images.
  void gather(const T* images, std::int64_t begin, std::int64_t end, T* patches) const {
    for_taps(begin, end, [&](std::int64_t at, std::int64_t source, std::int64_t count) {
      if (source < 0)
        std::fill_n(patches + at, count, T(0));
      else
        std::copy_n(images + source, count, patches + at);
    });
  }
  // Adds them to where they came from.
  void scatter(T* images, std::int64_t begin, std::int64_t end, const T* patches) const {
    for_taps(begin, end, [&](std::int64_t at, std::int64_t target, std::int64_t count) {
      for (std::int64_t i = 0; target >= 0 && i < count; ++i) images[target + i] += patches[at + i];
    });
  }

 private:
  // body(place in the patches, place in the images or -1 of padding, count) for each stretch.
  template <typename Body>
  void for_taps(std::int64_t begin, std::int64_t end, Body&& body) const {
    const ConvOptions& o = w_.options;
    const std::int64_t row_count = w_.kernel_width * w_.channels;
    const bool is_one_stretch = o.groups == 1 && o.dilation.width == 1;
    std::int64_t at = 0;
    for (std::int64_t place = begin; place < end; ++place) {
      const std::int64_t image = place / w_.columns(), y = place % w_.columns() / w_.out_width;
      const std::int64_t x0 = place % w_.out_width * o.stride.width - o.padding.width;
      const bool is_within = x0 >= 0 && x0 + w_.kernel_width <= w_.width;
      for (std::int64_t ky = 0; ky < w_.kernel_height; ++ky, at += row_count) {
        const std::int64_t from_y = y * o.stride.height + ky * o.dilation.height - o.padding.height;
        if (from_y < 0 || from_y >= w_.height) {
          body(at, -1, row_count);
          continue;
        }
        const std::int64_t row = (image * w_.height + from_y) * w_.width;
        const std::int64_t channel = group_ * w_.channels;
        if (is_one_stretch && is_within) {
          body(at, (row + x0) * all_channels_ + channel, row_count);
          continue;
        }
        for (std::int64_t kx = 0; kx < w_.kernel_width; ++kx) {
          const std::int64_t x = x0 + kx * o.dilation.width;
          const bool is_padding = x < 0 || x >= w_.width;
          body(at + kx * w_.channels, is_padding ? -1 : (row + x) * all_channels_ + channel,
               w_.channels);
        }
      }
    }
  }

  const ConvWindow& w_;
  const std::int64_t group_, all_channels_;
};

// Which taps of a line lie within the image, where the first is at `at`.
struct TapRange {
  std::int64_t begin, end;
  bool operator==(const TapRange&) const = default;
};
TapRange taps_within(std::int64_t at, std::int64_t size, std::int64_t taps, std::int64_t dilation) {
  const auto up_to = [&](std::int64_t reach) {  // how many taps lie before that element
    return reach <= 0 ? 0 : std::min(taps, (reach + dilation - 1) / dilation);
  };
  const std::int64_t begin = up_to(-at);
  return {begin, std::max(begin, up_to(size - at))};
}

// How many patches are in memory at a time, by each thread.
std::int64_t patches_at_once(const ConvWindow& w, std::size_t item_bytes) {
  constexpr std::int64_t kBytes = 1 << 18, kLeast = 64;
  return std::max(kLeast, kBytes / (w.rows() * static_cast<std::int64_t>(item_bytes)));
}

template <typename T>
void multiply_patches(const Tensor& out, const Tensor& a, const Tensor& weight, const ConvWindow& w,
              bool adds) {
  const std::int64_t groups = w.options.groups;
  const std::int64_t filters = weight.size(0) / groups, places = a.size(0) * w.columns();
  const std::int64_t grain = w.is_plain() ? places : patches_at_once(w, sizeof(T));
  const std::size_t bytes = static_cast<std::size_t>(grain * w.rows()) * sizeof(T);
  const std::int64_t pieces = (places + grain - 1) / grain;
  cpu::Workspaces rooms(w.is_plain() ? 0 : bytes, pieces);
  parallel_for(0, places, grain, [&](std::int64_t first, std::int64_t last) {
    T* const room = reinterpret_cast<T*>(rooms.take());
    for (std::int64_t begin = first; begin < last; begin += grain) {
      const std::int64_t end = std::min(begin + grain, last);
      for (std::int64_t group = 0; group < groups; ++group) {
        cpu::Products product{a.dtype(), end - begin, filters, w.rows()};
        product.b = {weight.const_data_ptr<T>() + group * filters * w.rows(), w.rows(), true};
        product.beta = adds ? 1 : 0;
        product.out = out.data_ptr<T>() + begin * weight.size(0) + group * filters;
        product.out_stride = weight.size(0);
        if (w.is_plain()) {
          product.a = {a.const_data_ptr<T>() + group * w.channels, a.size(1), false};
        } else {
          Patches<T>(w, group).gather(a.const_data_ptr<T>(), begin, end, room);
          product.a = {room, w.rows(), false};
        }
        cpu::gemm(product);
      }
    }
    rooms.give(reinterpret_cast<char*>(room));
  });
}

// A thread takes whole images, and their places in order.
template <typename T>
void add_patches(const Tensor& out, const Tensor& a, const Tensor& weight,
                         const ConvWindow& w) {
  const std::int64_t groups = w.options.groups, channels = a.size(1) / groups;
  const std::int64_t step = std::min(patches_at_once(w, sizeof(T)), w.columns());
  cpu::Workspaces rooms(static_cast<std::size_t>(step * w.rows()) * sizeof(T), a.size(0));
  const auto some = [&](T* room, std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const T* from = a.const_data_ptr<T>() + begin * a.size(1) + group * channels;
      const T* taps = weight.const_data_ptr<T>() + group * channels * w.rows();
      cpu::gemm(a.dtype(), end - begin, w.rows(), channels, {from, a.size(1), false},
                {taps, w.rows(), false}, 0, room, w.rows());
      Patches<T>(w, group).scatter(out.data_ptr<T>(), begin, end, room);
    }
  };
  parallel_for(0, a.size(0), 1, [&](std::int64_t first, std::int64_t last) {
    char* const room = rooms.take();
    for (std::int64_t image = first; image < last; ++image)
      for (std::int64_t place = 0; place < w.columns(); place += step) {
        const std::int64_t begin = image * w.columns() + place;
        some(reinterpret_cast<T*>(room), begin, begin + std::min(step, w.columns() - place));
      }
    rooms.give(room);
  });
}

// The patches are gathered a part at a time, and each part's product is added in order.
template <typename T>
void correlate_patches(const Tensor& out, const Tensor& gradient, const Tensor& a,
                       const ConvWindow& w) {
  const std::int64_t groups = w.options.groups, filters = out.size(0) / groups;
  const std::int64_t places = a.size(0) * w.columns();
  const std::int64_t step = std::min(places, 4 * patches_at_once(w, sizeof(T)));
  const Tensor room = w.is_plain() ? Tensor() : empty({step, w.rows()}, a.dtype());
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t begin = 0; begin < places; begin += step) {
      const std::int64_t end = std::min(begin + step, places);
      cpu::Matrix patches{a.const_data_ptr<T>() + begin * a.size(1) + group * w.channels, a.size(1),
                          false};
      if (!w.is_plain()) {
        T* const rows = room.data_ptr<T>();
        parallel_for(begin, end, std::max<std::int64_t>(1, 16384 / w.rows()),
                     [&](std::int64_t from, std::int64_t to) {
                       Patches<T>(w, group).gather(a.const_data_ptr<T>(), from, to,
                                                   rows + (from - begin) * w.rows());
                     });
        patches = {rows, w.rows(), false};
      }
      const T* g = gradient.const_data_ptr<T>() + begin * out.size(0) + group * filters;
      cpu::gemm(a.dtype(), filters, w.rows(), end - begin, {g, out.size(0), true}, patches, 1,
                out.data_ptr<T>() + group * filters * w.rows(), w.rows());
    }
}

// Groups of single channels with a filter each. `taps` are [kernel places, channels].
class SingleChannels {
 public:
  SingleChannels(const ConvWindow& w) : w_(w), channels_(w.options.groups) {
    const ConvOptions& o = w.options;
    for (std::int64_t y = 0; y < w.out_height; ++y)
      down_.push_back(taps_within(y * o.stride.height - o.padding.height, w.height,
                                  w.kernel_height, o.dilation.height));
    for (std::int64_t x = 0; x < w.out_width; ++x)
      right_.push_back(taps_within(x * o.stride.width - o.padding.width, w.width, w.kernel_width,
                                   o.dilation.width));
  }
  std::int64_t rows(const Tensor& images) const { return images.size(0) * w_.out_height; }
  std::int64_t row_work() const {
    return w_.out_width * channels_ * w_.kernel_height * w_.kernel_width;
  }

  // body(place, element, tap, window, places, step) for stretches of places of a row, whose
  // windows have the same taps.
  template <typename Body>
  void for_places(std::int64_t row, Body&& body) const {
    const ConvOptions& o = w_.options;
    const std::int64_t y = row % w_.out_height, pitch = w_.width * channels_;
    const TapRange ky = down_[static_cast<std::size_t>(y)];
    const std::int64_t top = row / w_.out_height * w_.height + y * o.stride.height -
                             o.padding.height + ky.begin * o.dilation.height;
    for (std::int64_t x = 0, next = 0; x < w_.out_width; x = next) {
      const TapRange kx = right_[static_cast<std::size_t>(x)];
      for (next = x + 1; next < w_.out_width && right_[static_cast<std::size_t>(next)] == kx;)
        ++next;
      const std::int64_t left =
          x * o.stride.width - o.padding.width + kx.begin * o.dilation.width;
      const cpu::WeighedWindow window{
          {ky.end - ky.begin, kx.end - kx.begin, channels_, o.dilation.height * pitch},
          o.dilation.width * channels_,
          w_.kernel_width * channels_};
      body((row * w_.out_width + x) * channels_, top * pitch + left * channels_,
           (ky.begin * w_.kernel_width + kx.begin) * channels_, window, next - x,
           o.stride.width * channels_);
    }
  }

 private:
  const ConvWindow& w_;
  const std::int64_t channels_;
  std::vector<TapRange> down_, right_;
};

template <typename T>
void weigh_channels_of(const Tensor& out, const Tensor& a, const Tensor& taps, const Tensor& bias,
                    const ConvWindow& w) {
  const SingleChannels singles(w);
  const auto run = cpu::channel_window_kernels<T>().weigh;
  T* const to = out.data_ptr<T>();
  const T* const in = a.const_data_ptr<T>();
  const T* const weights = taps.const_data_ptr<T>();
  const T* const offset = bias.defined() ? bias.const_data_ptr<T>() : nullptr;
  const std::int64_t rows = singles.rows(a);
  parallel_for(0, rows, even_grain(rows, (1 << 17) / singles.row_work()),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row)
                   singles.for_places(
                       row, [&](std::int64_t place, std::int64_t element, std::int64_t tap,
                                const cpu::WeighedWindow& window, std::int64_t places,
                                std::int64_t step) {
                         run(to + place, in + element, weights + tap, offset, window, places, step);
                       });
               });
}

void weigh_channels(const Tensor& out, const Tensor& a, const Tensor& taps, const Tensor& bias,
                    const ConvWindow& w) {
  out.dtype() == DType::kF64 ? weigh_channels_of<double>(out, a, taps, bias, w)
                             : weigh_channels_of<float>(out, a, taps, bias, w);
}

// With a stride of one the transpose is itself a convolution, by kernels that run backwards.
ConvWindow backwards(const ConvWindow& w) {
  ConvWindow back = w;
  std::swap(back.height, back.out_height);
  std::swap(back.width, back.out_width);
  Pair& padding = back.options.padding;
  padding.height = w.options.dilation.height * (w.kernel_height - 1) - padding.height;
  padding.width = w.options.dilation.width * (w.kernel_width - 1) - padding.width;
  return back;
}
bool is_backwards(const ConvWindow& w) {
  const ConvOptions back = backwards(w).options;
  return back.stride.height == 1 && back.stride.width == 1 && back.padding.height >= 0 &&
         back.padding.width >= 0;
}

// The taps' gradient. Parts of the rows, by sizes alone, have sums of their own, which are added in
// order.
template <typename T>
Tensor correlate_channels(const Tensor& gradient, const Tensor& a, const ConvWindow& w) {
  const SingleChannels singles(w);
  const auto run = cpu::channel_window_kernels<T>().correlate;
  constexpr std::int64_t kMostParts = 8;
  const std::int64_t rows = singles.rows(a), length = (rows + kMostParts - 1) / kMostParts;
  const std::int64_t parts = (rows + length - 1) / length;
  const Tensor sums =
      zeros({parts, w.kernel_height, w.kernel_width, w.options.groups}, gradient.dtype());
  const T* const in = a.const_data_ptr<T>();
  const T* const dy = gradient.const_data_ptr<T>();
  parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin * length; row < std::min(end * length, rows); ++row) {
      T* const to = sums.data_ptr<T>() + row / length * sums.stride(0);
      singles.for_places(row, [&](std::int64_t place, std::int64_t element, std::int64_t tap,
                                  const cpu::WeighedWindow& window, std::int64_t places,
                                  std::int64_t step) {
        run(to + tap, in + element, dy + place, window, places, step);
      });
    }
  });
  return ops::sum(sums, {0});
}

bool has_single_channels(const ConvWindow& w, std::int64_t filters) {
  return w.channels == 1 && w.options.groups > 1 && filters == w.options.groups;
}

// Many groups of few channels or filters: their matrices have few columns here, and many as planes.
bool has_narrow_groups(const ConvWindow& w, std::int64_t filters) {
  constexpr std::int64_t kFew = 16;
  return w.options.groups > 1 && (w.rows() < kFew || filters / w.options.groups < kFew);
}

template <typename Run>
void by_planes(const Tensor& out, const Tensor& a, const Tensor& weight, Run&& run) {
  const Tensor planes = zeros(out.sizes(), out.dtype());
  run(planes, contiguous(a), contiguous(weight));
  copy_(out, planes);
}

}  // namespace

void channels_last::convolve(const Tensor& out, const Tensor& a, const Tensor& weight,
                             const Tensor& bias, const ConvWindow& w) {
  constexpr std::int64_t kFew = 4;  // that would leave half a vector empty
  if (has_single_channels(w, weight.size(0)) && w.options.groups > kFew) {
    const Tensor taps = contiguous(weight.permute({1, 2, 3, 0}));
    return weigh_channels(out, a, taps, bias, w);
  }
  if (has_narrow_groups(w, weight.size(0)))
    return by_planes(out, a, weight, [&](const Tensor& o, const Tensor& image, const Tensor& taps) {
      planes::convolve(o, image, taps, bias, w);
    });
  const bool adds = bias.defined();
  if (adds) copy_(out, bias.view({1, -1, 1, 1}));
  out.dtype() == DType::kF64 ? multiply_patches<double>(out, a, weight, w, adds)
                             : multiply_patches<float>(out, a, weight, w, adds);
}

void channels_last::convolve_transposed(const Tensor& out, const Tensor& a, const Tensor& weight,
                                        const Tensor& bias, const ConvWindow& w) {
  if (has_single_channels(w, a.size(1)) && is_backwards(w)) {
    const Tensor taps = contiguous(ops::flip(weight, {2, 3}).permute({1, 2, 3, 0}));
    const Tensor offset = bias.defined() ? contiguous(to(bias, out.dtype())) : bias;
    return weigh_channels(out, a, taps, offset, backwards(w));
  }
  if (has_narrow_groups(w, a.size(1)))
    return by_planes(out, a, weight, [&](const Tensor& o, const Tensor& image, const Tensor& taps) {
      planes::convolve_transposed(o, image, taps, bias, w);
    });
  bias.defined() ? copy_(out, bias.view({1, -1, 1, 1})) : zero_(out);
  out.dtype() == DType::kF64 ? add_patches<double>(out, a, weight, w)
                             : add_patches<float>(out, a, weight, w);
}

void channels_last::correlate(const Tensor& out, const Tensor& gradient, const Tensor& a,
                              const ConvWindow& w) {
  if (has_single_channels(w, out.size(0))) {
    const Tensor taps = out.dtype() == DType::kF64 ? correlate_channels<double>(gradient, a, w)
                                                   : correlate_channels<float>(gradient, a, w);
    copy_(out, taps.unsqueeze(0).permute({3, 0, 1, 2}));
    return;
  }
  if (has_narrow_groups(w, out.size(0)))
    return by_planes(out, gradient, a, [&](const Tensor& o, const Tensor& g, const Tensor& image) {
      planes::correlate(o, g, image, w);
    });
  out.dtype() == DType::kF64 ? correlate_patches<double>(out, gradient, a, w)
                             : correlate_patches<float>(out, gradient, a, w);
}

}  // namespace tenon::ops
