// Windows over elements whose channels lie side by side, a vector of channels at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/channel_windows.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
// clang-format on

#include <algorithm>
#include <limits>

#include "tenon/ops/kernels/cpu/channel_windows.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

using cpu::ChannelWindow;

// take(element, at) for each element of the window, `at` elements of the tensor from its first.
template <typename Take>
HWY_INLINE void each_element(const ChannelWindow& w, Take&& take) {
  std::uint32_t element = 0;
  for (std::int64_t row = 0; row < w.rows; ++row)
    for (std::int64_t column = 0; column < w.columns; ++column)
      take(element++, row * w.pitch + column * w.channels);
}

template <class D, class V>
HWY_INLINE auto exceeds(D, V value, V best) {
  return hn::Or(hn::Gt(value, best), hn::IsNaN(value));
}

template <typename T>
void channel_largest(T* out, const T* in, const ChannelWindow& w) {
  each_vector<T>(w.channels, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
    auto best = hn::Set(d, -std::numeric_limits<T>::infinity());
    each_element(w, [&](std::uint32_t, std::int64_t at) HWY_ATTR {
      const auto value = load_some(d, in + at + c, n);
      best = hn::IfThenElse(exceeds(d, value, best), value, best);
    });
    store_some(d, best, out + c, n);
  });
}

// Down the columns first, as of planes.
template <typename T>
void channel_average(T* out, const T* in, const ChannelWindow& w, T count) {
  each_vector<T>(w.channels, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (std::int64_t column = 0; column < w.columns && w.rows > 0; ++column) {
      const T* const top = in + column * w.channels + c;
      auto part = load_some(d, top, n);
      for (std::int64_t row = 1; row < w.rows; ++row)
        part = hn::Add(part, load_some(d, top + row * w.pitch, n));
      sum = hn::Add(sum, part);
    }
    store_some(d, hn::Div(sum, hn::Set(d, count)), out + c, n);
  });
}

template <typename T>
void channel_share(T* dx, const T* dy, const ChannelWindow& w, T count) {
  each_vector<T>(w.channels, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
    const auto share = hn::Div(load_some(d, dy + c, n), hn::Set(d, count));
    each_element(w, [&](std::uint32_t, std::int64_t at) HWY_ATTR {
      store_some(d, hn::Add(load_some(d, dx + at + c, n), share), dx + at + c, n);
    });
  });
}

template <typename T>
void channel_choices(std::uint8_t* out, const T* in, const ChannelWindow& w) {
  each_vector<T>(w.channels, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> integers;
    const hn::Rebind<std::uint8_t, decltype(d)> bytes;
    auto best = load_some(d, in + c, n);
    auto choice = hn::Zero(integers);
    each_element(w, [&](std::uint32_t element, std::int64_t at) HWY_ATTR {
      const auto value = load_some(d, in + at + c, n);
      const auto is_better = exceeds(d, value, best);
      best = hn::IfThenElse(is_better, value, best);
      choice = hn::IfThenElse(hn::RebindMask(integers, is_better), hn::Set(integers, element),
                              choice);
    });
    HWY_ALIGN std::uint8_t some[hn::MaxLanes(bytes)];
    hn::StoreU(hn::TruncateTo(bytes, choice), bytes, some);
    std::copy_n(some, n, out + c);
  });
}

template <typename T>
void channel_add_to_chosen(T* dx, const T* dy, const std::uint8_t* choices,
                           const ChannelWindow& w) {
  std::int64_t places[256];
  each_element(w, [&](std::uint32_t element, std::int64_t at) { places[element] = at; });
  for (std::int64_t c = 0; c < w.channels; ++c) dx[places[choices[c]] + c] += dy[c];
}

template <typename T>
constexpr cpu::ChannelWindowKernels<T> kChannelKernels = {
    &channel_largest<T>, &channel_average<T>, &channel_share<T>, &channel_choices<T>,
    &channel_add_to_chosen<T>};

}  // namespace

const cpu::ChannelWindowKernels<float>& channel_kernels_f32() { return kChannelKernels<float>; }
const cpu::ChannelWindowKernels<double>& channel_kernels_f64() { return kChannelKernels<double>; }

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(channel_kernels_f32);
HWY_EXPORT(channel_kernels_f64);

template <>
const cpu::ChannelWindowKernels<float>& cpu::channel_window_kernels() {
  return HWY_DYNAMIC_DISPATCH(channel_kernels_f32)();
}
template <>
const cpu::ChannelWindowKernels<double>& cpu::channel_window_kernels() {
  return HWY_DYNAMIC_DISPATCH(channel_kernels_f64)();
}

}  // namespace tenon::ops
#endif
