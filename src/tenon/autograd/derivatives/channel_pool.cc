#include "tenon/autograd/derivatives/channel_pool.h"

#include "tenon/ops/elementwise.h"
#include "tenon/ops/pool_windows.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::autograd {
namespace {

using ops::cpu::ChannelWindow;
using ops::cpu::channel_window_kernels;

constexpr MemoryFormat kLast = MemoryFormat::kChannelsLast;
constexpr std::int64_t kMostChoices = 256;  // of a byte

Tensor computed_last(const Tensor& t) {
  return contiguous(to(t, ops::compute_dtype(t.dtype())), kLast);
}

template <typename T>
void find_chosen(const Tensor& choices, const Tensor& a, const ops::SlidingWindows& windows) {
  auto* const found = choices.data_ptr<std::uint8_t>();
  const T* const in = a.const_data_ptr<T>();
  const auto run = ops::cpu::channel_pool_kernels<T>().choices;
  for_each_channel_window(a.sizes(), choices.sizes(), windows, false,
                          [&](const ChannelWindow& window, std::int64_t from, std::int64_t to,
                              std::int64_t) { run(found + to, in + from, window); });
}

template <typename T>
void add_to_chosen(const Tensor& out, const Tensor& g, const Tensor& choices,
                   const ops::SlidingWindows& windows) {
  T* const dx = out.data_ptr<T>();
  const T* const dy = g.const_data_ptr<T>();
  const auto* const chosen = choices.const_data_ptr<std::uint8_t>();
  const auto run = channel_window_kernels<T>().add_to_chosen;
  for_each_channel_window(out.sizes(), g.sizes(), windows, true,
                          [&](const ChannelWindow& window, std::int64_t from, std::int64_t to,
                              std::int64_t) { run(dx + from, dy + to, chosen + to, window); });
}

}  // namespace

Tensor channel_pool::choices(const Tensor& a, const ops::PoolOptions& o) {
  if (ops::image_format(a) != kLast || !is_floating(a.dtype()) || a.numel() == 0 ||
      o.kernel.height > kMostChoices || o.kernel.width > kMostChoices ||
      o.kernel.height * o.kernel.width > kMostChoices)
    return {};
  const ops::SlidingWindows windows("max_pool2d", o);
  const std::int64_t height = windows.places(a.size(2), true);
  const std::int64_t width = windows.places(a.size(3), false);
  if (height == 0 || width == 0) return {};
  const Tensor found = empty({a.size(0), a.size(1), height, width}, DType::kU8, a.device(), kLast);
  if (found.is_meta()) {
    const Labels labels = ops::labels::pool("max_pool2d", a, o);
    tenon::detail::give_labels("max_pool2d", found, labels, true);
    return found;
  }
  switch (a.dtype()) {
    case DType::kF64:
      find_chosen<double>(found, a, windows);
      break;
    case DType::kBF16:
      find_chosen<BFloat16>(found, a, windows);
      break;
    case DType::kF16:
      find_chosen<Half>(found, a, windows);
      break;
    default:
      find_chosen<float>(found, to(a, DType::kF32), windows);
  }
  return found;
}

Tensor channel_pool::gradient(const Tensor& result, const Tensor& choices, IntList sizes,
                              const ops::PoolOptions& o) {
  const Tensor g = computed_last(result), chosen = contiguous(choices, kLast);
  const Tensor out = zero_(empty(sizes, g.dtype(), g.device(), kLast));
  if (out.is_meta()) return to(out, result.dtype());
  const ops::SlidingWindows windows("max_pool2d", o);
  out.dtype() == DType::kF64 ? add_to_chosen<double>(out, g, chosen, windows)
                             : add_to_chosen<float>(out, g, chosen, windows);
  return to(out, result.dtype());
}

Tensor channel_pool::places(const Tensor& choices, IntList sizes, const ops::PoolOptions& o) {
  const Tensor places = empty(choices.sizes(), DType::kI64, choices.device(), kLast);
  const Tensor chosen = contiguous(choices, kLast);
  if (places.is_meta()) return contiguous(places);
  const auto* const from = chosen.const_data_ptr<std::uint8_t>();
  auto* const found = places.data_ptr<std::int64_t>();
  const std::int64_t width = sizes[3], plane = sizes[2] * width;
  for_each_channel_window(sizes, choices.sizes(), ops::SlidingWindows("max_pool2d", o), false,
                          [&](const ChannelWindow& window, std::int64_t first, std::int64_t to,
                              std::int64_t) {
                            const std::int64_t start = first / window.channels % plane;
                            for (std::int64_t c = 0; c < window.channels; ++c)
                              found[to + c] = start + from[to + c] / window.columns * width +
                                              from[to + c] % window.columns;
                          });
  return contiguous(places);
}

}  // namespace tenon::autograd
