#include "tenon/autograd/derivatives/channel_pool.h"
#include "tenon/autograd/derivatives/direct.h"
#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/pool_windows.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::autograd {
namespace {

using namespace ops;

// Runs body(plane, row, column, spans) for each place of each plane, planes on several threads.
template <typename Windows, typename Body>
void for_each_place(IntList sizes, IntList out_sizes, const Windows& windows, Body&& body) {
  const std::size_t n = sizes.size();
  const std::int64_t height = out_sizes[n - 2], width = out_sizes[n - 1];
  const std::int64_t planes = height * width == 0 ? 0 : numel_of(out_sizes) / (height * width);
  parallel_for(0, planes,
               std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, height * width)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t plane = begin; plane < end; ++plane)
                   for (std::int64_t y = 0; y < height; ++y) {
                     const PoolSpan rows = windows(y, sizes[n - 2], true);
                     for (std::int64_t x = 0; x < width; ++x)
                       body(plane, y * width + x, rows, windows(x, sizes[n - 1], false));
                   }
               });
}

// Where in its plane each maximum stands: the first of equal ones, or a NaN.
Tensor maximum_places(const Tensor& a, IntList out_sizes, const SlidingWindows& windows) {
  const Tensor places = empty(out_sizes, DType::kI64, a.device());
  if (a.is_meta()) return places;
  const Tensor dense = contiguous(to(a, compute_dtype(a.dtype())));
  HostTurn host;
  if (vulkan::holds(a) && a.numel() > 0) {
    const vulkan::Windows w = windows.on_device(a.sizes(), out_sizes);
    if (vulkan::windows(vulkan::WindowWork::kMaximumPlace, places, dense, w,
                        a.numel() / (w.height * w.width)))
      return places;
    host.take("max_pool2d's places", a.device());
  }
  const std::int64_t width = a.size(-1), plane_size = a.size(-2) * width;
  const std::int64_t out_plane = places.size(-2) * places.size(-1);
  std::int64_t* found = places.data_ptr<std::int64_t>();
  const auto run = [&]<typename T>() {
    const T* data = dense.const_data_ptr<T>();
    for_each_place(a.sizes(), out_sizes, windows,
                   [&](std::int64_t plane, std::int64_t at, const PoolSpan& y, const PoolSpan& x) {
                     const T* in = data + plane * plane_size;
                     std::int64_t best = y.begin * width + x.begin;
                     T largest = in[best];
                     for (std::int64_t i = y.begin; i < y.end; ++i)
                       for (std::int64_t j = x.begin; j < x.end; ++j) {
                         const T value = in[i * width + j];
                         if (!(value > largest) && value == value) continue;
                         largest = value;
                         best = i * width + j;
                       }
                     found[plane * out_plane + at] = best;
                   });
  };
  dense.dtype() == DType::kF64 ? run.template operator()<double>()
                               : run.template operator()<float>();
  return places;
}

DimVector flat_planes(IntList sizes) {
  DimVector flat(sizes.data(), sizes.size() - 2);
  flat.push_back(sizes[sizes.size() - 1] * sizes[sizes.size() - 2]);
  return flat;
}

class MaxPoolNode final : public NodeOf<1> {
 public:
  const char* name() const override { return "max_pool2d"; }
  void save(std::uint32_t, const Tensor& a, const PoolOptions& options) {
    Tensor choices = channel_pool::choices(a.detach(), options);
    is_of_channels_ = choices.defined();
    if (!is_of_channels_) choices = direct::max_pool_choices(a.detach(), options);
    has_choices_ = choices.defined();
    kept_.save(has_choices_ ? choices : a);
    input_.save(a);
    options_ = options;
  }
  void release_saved() override { kept_.release(); }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    if (has_choices_ && !formulas_recorded()) {
      const auto run = is_of_channels_ ? &channel_pool::gradient : &direct::max_pool;
      call.out[0] = run(g, kept_.get(*this), input_.sizes(), options_);
      if (call.out[0].defined()) return;
    }
    // One element, since scatter_add makes the whole.
    const Tensor wide = to(g, compute_dtype(g.dtype()));
    const Tensor nothing = zeros({}, wide.dtype(), g.device()).expand(flat_planes(input_.sizes()));
    const Tensor sums =
        scatter_add(nothing, -1, places(g.sizes()), wide.reshape(flat_planes(g.sizes())));
    call.out[0] = to(sums.reshape(input_.sizes()), g.dtype());
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor& result) override {
    const Tensor& t = tangents[0];
    return ops::gather(t.reshape(flat_planes(t.sizes())), -1, places(result.sizes()))
        .reshape(result.sizes());
  }

 private:
  Tensor places(IntList out_sizes) const {
    const Tensor kept = kept_.get(*this);
    const ops::KeyGuard below(DispatchKey::kAutograd);
    const auto found = [&] {
      if (is_of_channels_) return channel_pool::places(kept, input_.sizes(), options_);
      if (has_choices_) return direct::max_pool_places(kept, input_.sizes(), options_);
      return maximum_places(kept.detach(), out_sizes, SlidingWindows("max_pool2d", options_));
    };
    return found().view(flat_planes(out_sizes));
  }

  SavedTensor kept_;  // a choice for each window, or the input
  InputShape input_;
  PoolOptions options_;
  bool has_choices_ = false, is_of_channels_ = false;
};

template <typename Windows>
void share_averages(const Tensor& out, const Tensor& g, const Windows& windows) {
  const auto run = [&]<typename T>() {
    const auto share = cpu::channel_window_kernels<T>().share;
    const T* dy = g.const_data_ptr<T>();
    T* dx = out.data_ptr<T>();
    for_each_channel_window(out.sizes(), g.sizes(), windows, true,
                            [&](const cpu::ChannelWindow& window, std::int64_t from,
                                std::int64_t to, std::int64_t count) {
                              share(dx + from, dy + to, window, static_cast<T>(count));
                            });
  };
  g.dtype() == DType::kF64 ? run.template operator()<double>() : run.template operator()<float>();
}

// Each place's gradient, shared among the elements that it averages.
template <typename Windows>
Tensor spread_averages(const Tensor& gradient, IntList sizes, const Windows& windows,
                       bool count_padding) {
  const DType compute = compute_dtype(gradient.dtype());
  const MemoryFormat format = image_format(gradient);
  const Tensor g = contiguous(to(gradient, compute), format);
  const Tensor out = zero_(empty(sizes, compute, g.device(), format));
  if (g.is_meta()) return to(out, gradient.dtype());
  if (format == MemoryFormat::kChannelsLast) {
    share_averages(out, g, windows);
    return to(out, gradient.dtype());
  }
  HostTurn host;
  if (vulkan::holds(g) && g.numel() > 0) {
    vulkan::Windows w = windows.on_device(sizes, g.sizes());
    w.counts_padding = count_padding;
    if (vulkan::windows(vulkan::WindowWork::kSpread, out, g, w,
                        g.numel() / (w.out_height * w.out_width)))
      return to(out, gradient.dtype());
    host.take("avg_pool2d's derivative", g.device());
  }
  const std::int64_t width = out.size(-1), plane_size = out.size(-2) * width;
  const std::int64_t g_plane = g.size(-2) * g.size(-1);
  const auto run = [&]<typename T>() {
    const T* in = g.const_data_ptr<T>();
    T* data = out.data_ptr<T>();
    for_each_place(sizes, g.sizes(), windows,
                   [&](std::int64_t plane, std::int64_t at, const PoolSpan& y, const PoolSpan& x) {
                     const std::int64_t count = count_padding
                                                    ? y.nominal * x.nominal
                                                    : (y.end - y.begin) * (x.end - x.begin);
                     const T share = in[plane * g_plane + at] / static_cast<T>(count);
                     for (std::int64_t i = y.begin; i < y.end; ++i)
                       for (std::int64_t j = x.begin; j < x.end; ++j)
                         data[plane * plane_size + i * width + j] += share;
                   });
  };
  compute == DType::kF64 ? run.template operator()<double>() : run.template operator()<float>();
  return to(out, gradient.dtype());
}

class AvgPoolNode final : public NodeOf<1> {
 public:
  const char* name() const override { return "avg_pool2d"; }
  void save(std::uint32_t, const Tensor& a, const PoolOptions& options) {
    input_.save(a);
    options_ = options;
  }
  void backward(const BackwardCall& call) override {
    call.out[0] = linear_call(
        "avg_pool2d_backward", call.grad(),
        [sizes = input_.sizes().to_vector(), o = options_](const Tensor& g) {
          return spread_averages(g, sizes, SlidingWindows("avg_pool2d", o), o.count_padding);
        },
        [o = options_](const Tensor& t) { return avg_pool2d(t, o); });
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return avg_pool2d(tangents[0], options_);
  }

 private:
  InputShape input_;
  PoolOptions options_;
};

class AdaptivePoolNode final : public NodeOf<1> {
 public:
  const char* name() const override { return "adaptive_avg_pool2d"; }
  void save(std::uint32_t, const Tensor& a, const Pair& size) {
    input_.save(a);
    size_ = size;
  }
  void backward(const BackwardCall& call) override {
    call.out[0] = linear_call(
        "adaptive_avg_pool2d_backward", call.grad(),
        [sizes = input_.sizes().to_vector(), size = size_](const Tensor& g) {
          return spread_averages(g, sizes, AdaptiveWindows(size), false);
        },
        [size = size_](const Tensor& t) { return adaptive_avg_pool2d(t, size); });
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return adaptive_avg_pool2d(tangents[0], size_);
  }

 private:
  InputShape input_;
  Pair size_ = 1;
};

}  // namespace

void install_pool() {
  set_derivative<ops::op::max_pool2d, MaxPoolNode>();
  set_derivative<ops::op::avg_pool2d, AvgPoolNode>();
  set_derivative<ops::op::adaptive_avg_pool2d, AdaptivePoolNode>();
}

}  // namespace tenon::autograd
