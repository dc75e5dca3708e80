// Windows over elements whose channels lie side by side, a vector of channels at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/channel_windows.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
#include "tenon/ops/kernels/cpu/wide_load-inl.h"
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

// A whole vector, or its first lanes.
template <class D, typename From>
HWY_INLINE hn::Vec<D> load_part(D d, const From* from, std::int64_t count) {
  if (count == static_cast<std::int64_t>(hn::Lanes(d))) return load(d, from);
  return load_first(d, from, count);
}

template <class D, class V>
HWY_INLINE auto exceeds(D, V value, V best) {
  return hn::Or(hn::Gt(value, best), hn::IsNaN(value));
}

template <typename T>
void channel_largest(T* out, const T* in, const ChannelWindow& w) {
  using W = Wide<T>;
  each_vector<W>(w.channels, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
    auto best = hn::Set(d, -std::numeric_limits<W>::infinity());
    each_element(w, [&](std::uint32_t, std::int64_t at) HWY_ATTR {
      const auto value = load_part(d, in + at + c, n);
      best = hn::IfThenElse(exceeds(d, value, best), value, best);
    });
    store_first(d, best, out + c, n);
  });
}

// Down the columns first, as of planes.
template <typename T>
void channel_average(T* out, const T* in, const ChannelWindow& w, double count) {
  using W = Wide<T>;
  each_vector<W>(w.channels, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (std::int64_t column = 0; column < w.columns && w.rows > 0; ++column) {
      const T* const top = in + column * w.channels + c;
      auto part = load_part(d, top, n);
      for (std::int64_t row = 1; row < w.rows; ++row)
        part = hn::Add(part, load_part(d, top + row * w.pitch, n));
      sum = hn::Add(sum, part);
    }
    store_first(d, hn::Div(sum, hn::Set(d, static_cast<W>(count))), out + c, n);
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
  each_vector<Wide<T>>(w.channels, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> integers;
    const hn::Rebind<std::uint8_t, decltype(d)> bytes;
    auto best = load_part(d, in + c, n);
    auto choice = hn::Zero(integers);
    each_element(w, [&](std::uint32_t element, std::int64_t at) HWY_ATTR {
      const auto value = load_part(d, in + at + c, n);
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

// Numbers of bytes as integers of the lanes' size.
template <class D>
HWY_INLINE auto promoted(D, const std::uint8_t* from, std::int64_t count) {
  const hn::Rebind<std::uint8_t, D> bytes;
  const hn::Rebind<std::uint32_t, D> words;
  HWY_ALIGN std::uint8_t some[hn::MaxLanes(bytes)] = {};
  std::copy_n(from, count, some);
  const auto wide = hn::PromoteTo(words, hn::Load(bytes, some));
  if constexpr (sizeof(hn::TFromD<D>) == 8)
    return hn::PromoteTo(hn::RebindToUnsigned<D>(), wide);
  else
    return wide;
}

template <typename T>
void channel_add_to_chosen(T* dx, const T* dy, const std::uint8_t* choices,
                           const ChannelWindow& w) {
  each_vector<T>(w.channels, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> integers;
    const auto chosen = promoted(d, choices + c, n);
    const auto gradient = load_some(d, dy + c, n);
    each_element(w, [&](std::uint32_t element, std::int64_t at) HWY_ATTR {
      const auto is_chosen = hn::Eq(chosen, hn::Set(integers, element));
      const auto share = hn::IfThenElseZero(hn::RebindMask(d, is_chosen), gradient);
      T* const to = dx + at + c;
      store_some(d, hn::Add(load_some(d, to, n), share), to, n);
    });
  });
}

// Several sums at a time, so that none waits for another: of `kCount` places, which share a tap, or
// of `kCount` vectors of channels of one place.
template <std::size_t kCount, bool kOfPlaces, typename T, class D>
HWY_INLINE void weigh_some(D d, T* out, const T* in, const T* taps, const T* bias,
                           const cpu::WeighedWindow& w, std::int64_t step, std::int64_t n) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto number = [](std::size_t i) { return static_cast<std::int64_t>(i); };
  hn::Vec<D> sums[kCount];
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::int64_t apart = kOfPlaces ? 0 : lanes;
    sums[i] = bias == nullptr ? hn::Zero(d) : load_some(d, bias + number(i) * apart, n);
  }
  for (std::int64_t row = 0; row < w.window.rows; ++row) {
    const T* from = in + row * w.window.pitch;
    const T* tap = taps + row * w.tap_pitch;
    for (std::int64_t column = 0; column < w.window.columns; ++column) {
      auto weight = load_some(d, tap, n);
      for (std::size_t i = 0; i < kCount; ++i) {
        if (!kOfPlaces && i > 0) weight = load_some(d, tap + number(i) * lanes, n);
        const T* element = from + number(i) * (kOfPlaces ? step : lanes);
        sums[i] = hn::MulAdd(load_some(d, element, n), weight, sums[i]);
      }
      from += w.across;
      tap += w.window.channels;
    }
  }
  const std::int64_t apart = kOfPlaces ? w.window.channels : lanes;
  for (std::size_t i = 0; i < kCount; ++i) store_some(d, sums[i], out + number(i) * apart, n);
}

template <typename T>
void channel_weigh(T* out, const T* in, const T* taps, const T* bias, const cpu::WeighedWindow& w,
                   std::int64_t places, std::int64_t step) {
  constexpr std::size_t kVectors = 4;
  const hn::ScalableTag<T> all;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(all));
  const std::int64_t channels = w.window.channels;
  const auto offset = [&](std::int64_t c) { return bias == nullptr ? bias : bias + c; };
  const auto together = [&]<std::size_t kPlaces>(std::int64_t place) HWY_ATTR {
    each_vector<T>(channels, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
      weigh_some<kPlaces, true>(d, out + place * channels + c, in + place * step + c, taps + c,
                                offset(c), w, step, n);
    });
  };
  std::int64_t place = 0;
  for (; place + 8 <= places; place += 8) together.template operator()<8>(place);
  for (; place + 4 <= places; place += 4) together.template operator()<4>(place);
  for (; place < places; ++place) {
    const std::int64_t block = static_cast<std::int64_t>(kVectors) * lanes;
    const std::int64_t whole = channels / block * block;
    T* const to = out + place * channels;
    const T* const from = in + place * step;
    for (std::int64_t c = 0; c < whole; c += block)
      weigh_some<kVectors, false>(all, to + c, from + c, taps + c, offset(c), w, step, lanes);
    each_vector<T>(channels - whole, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
      c += whole;
      weigh_some<1, true>(d, to + c, from + c, taps + c, offset(c), w, step, n);
    });
  }
}

// Taps `number` and on, row by row.
template <std::size_t kCount, typename T, class D>
HWY_INLINE void correlate_some(D d, T* taps, const T* in, const T* dy, const cpu::WeighedWindow& w,
                               std::int64_t number, std::int64_t places, std::int64_t step,
                               std::int64_t n) {
  const T* from[kCount];
  T* to[kCount];
  hn::Vec<D> sums[kCount];
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::int64_t tap = number + static_cast<std::int64_t>(i);
    const std::int64_t row = tap / w.window.columns, column = tap % w.window.columns;
    from[i] = in + row * w.window.pitch + column * w.across;
    to[i] = taps + row * w.tap_pitch + column * w.window.channels;
    sums[i] = load_some(d, to[i], n);
  }
  for (std::int64_t place = 0; place < places; ++place) {
    const auto factor = load_some(d, dy + place * w.window.channels, n);
    for (std::size_t i = 0; i < kCount; ++i)
      sums[i] = hn::MulAdd(load_some(d, from[i] + place * step, n), factor, sums[i]);
  }
  for (std::size_t i = 0; i < kCount; ++i) store_some(d, sums[i], to[i], n);
}

// Some places at a time, so that what the next channels read is in the first cache still.
template <typename T>
void channel_correlate(T* taps, const T* in, const T* dy, const cpu::WeighedWindow& w,
                       std::int64_t places, std::int64_t step) {
  constexpr std::int64_t kMany = 9, kSome = 3, kCacheBytes = 24 << 10, kLeast = 8;
  const std::int64_t channels = w.window.channels, count = w.window.rows * w.window.columns;
  const std::int64_t place_bytes =
      (w.window.rows + 1) * channels * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t most = std::max(kLeast, kCacheBytes / place_bytes);
  for (std::int64_t first = 0; first < places; first += most) {
    const std::int64_t some = std::min(most, places - first);
    each_vector<T>(channels, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
      const T* from = in + first * step + c;
      const T* factors = dy + first * channels + c;
      std::int64_t tap = 0;
      for (; tap + kMany <= count; tap += kMany)
        correlate_some<kMany>(d, taps + c, from, factors, w, tap, some, step, n);
      for (; tap + kSome <= count; tap += kSome)
        correlate_some<kSome>(d, taps + c, from, factors, w, tap, some, step, n);
      for (; tap < count; ++tap)
        correlate_some<1>(d, taps + c, from, factors, w, tap, some, step, n);
    });
  }
}

template <typename T>
constexpr cpu::ChannelWindowKernels<T> kChannelKernels = {
    &channel_share<T>, &channel_add_to_chosen<T>, &channel_weigh<T>, &channel_correlate<T>};
template <typename T>
constexpr cpu::ChannelPoolKernels<T> kPoolKernels = {&channel_largest<T>, &channel_average<T>,
                                                     &channel_choices<T>};

}  // namespace

const cpu::ChannelWindowKernels<float>& channel_kernels_f32() { return kChannelKernels<float>; }
const cpu::ChannelWindowKernels<double>& channel_kernels_f64() { return kChannelKernels<double>; }
const cpu::ChannelPoolKernels<float>& pool_kernels_f32() { return kPoolKernels<float>; }
const cpu::ChannelPoolKernels<double>& pool_kernels_f64() { return kPoolKernels<double>; }
const cpu::ChannelPoolKernels<BFloat16>& pool_kernels_bf16() { return kPoolKernels<BFloat16>; }
const cpu::ChannelPoolKernels<Half>& pool_kernels_f16() { return kPoolKernels<Half>; }

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(channel_kernels_f32);
HWY_EXPORT(channel_kernels_f64);
HWY_EXPORT(pool_kernels_f32);
HWY_EXPORT(pool_kernels_f64);
HWY_EXPORT(pool_kernels_bf16);
HWY_EXPORT(pool_kernels_f16);

template <>
const cpu::ChannelWindowKernels<float>& cpu::channel_window_kernels() {
  return HWY_DYNAMIC_DISPATCH(channel_kernels_f32)();
}
template <>
const cpu::ChannelWindowKernels<double>& cpu::channel_window_kernels() {
  return HWY_DYNAMIC_DISPATCH(channel_kernels_f64)();
}
template <>
const cpu::ChannelPoolKernels<float>& cpu::channel_pool_kernels() {
  return HWY_DYNAMIC_DISPATCH(pool_kernels_f32)();
}
template <>
const cpu::ChannelPoolKernels<double>& cpu::channel_pool_kernels() {
  return HWY_DYNAMIC_DISPATCH(pool_kernels_f64)();
}
template <>
const cpu::ChannelPoolKernels<BFloat16>& cpu::channel_pool_kernels() {
  return HWY_DYNAMIC_DISPATCH(pool_kernels_bf16)();
}
template <>
const cpu::ChannelPoolKernels<Half>& cpu::channel_pool_kernels() {
  return HWY_DYNAMIC_DISPATCH(pool_kernels_f16)();
}

}  // namespace tenon::ops
#endif
