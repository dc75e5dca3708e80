// Windows that walk planes, some of them side by side in vectors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/windows.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
// clang-format on

#include <algorithm>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/windows.h"
#include "tenon/ops/kernels/cpu/workspaces.h"

#ifndef TENON_OPS_WINDOWS_LAYOUT
#define TENON_OPS_WINDOWS_LAYOUT
namespace tenon::ops::cpu {

// A plane with its padding, spread so that the elements that a tap meets lie side by side: a row is
// cut into the columns 0, s, 2s, ... of the stride s, then 1, s + 1, ... (its phases).
//
//   a row, s = 2, padding 1:   - a b c d e -     phases:  - b d -   a c e
struct WindowLayout {
  explicit WindowLayout(const WindowWork& w) : work(w) {
    const std::int64_t reach = (w.kernel.width - 1) * w.dilation.width, step = w.stride.width;
    pitch = (w.out_width + kVector - 1) / kVector * kVector + reach / step;
    for (std::int64_t p = 0; p < std::min(step, reach + 1); ++p) {
      const auto reached = [&](std::int64_t x) {
        return std::min(x <= 0 ? 0 : (x + step - 1) / step, pitch);
      };
      const std::int64_t x0 = p - w.padding.width, first = reached(-x0);
      phases.push_back({x0, first, std::max(first, reached(w.width - x0))});
    }
    row_elements = static_cast<std::int64_t>(phases.size()) * pitch;
    rows = (w.out_height - 1) * w.stride.height + (w.kernel.height - 1) * w.dilation.height + 1;
    for (std::int64_t x = 0; x <= reach; x += w.dilation.width)
      places.push_back(x % step * pitch + x / step);
  }
  static constexpr std::int64_t kVector = 16;  // the most lanes of a vector

  // Place i has column x0 + i s; the row has those of places [first, last).
  struct Phase {
    std::int64_t x0, first, last;
  };
  WindowWork work;
  std::int64_t pitch, rows, row_elements;  // elements of a phase; rows; elements of all phases
  std::vector<Phase> phases;
  std::vector<std::int64_t> places;  // of a row's taps
};
struct WindowKernels {
  void (*spread)(const WindowLayout& layout, void* room, const void* plane);
  void (*walk)(const WindowLayout& layout, void* out, const void* room, const void* taps,
               const void* bias);
};

}  // namespace tenon::ops::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

using cpu::WindowLayout;

// even[i] = from[2 i] and odd[i] = from[2 i + 1] for i in [0, count). The last vector overlaps.
template <typename T>
void copy_pairs(T* even, T* odd, const T* from, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (count < lanes) {
    for (std::int64_t i = 0; i < count; ++i) {
      even[i] = from[2 * i];
      odd[i] = from[2 * i + 1];
    }
    return;
  }
  for (std::int64_t i = 0; i < count; i += lanes) {
    const std::int64_t at = std::min(i, count - lanes);
    hn::Vec<decltype(d)> low, high;
    hn::LoadInterleaved2(d, from + 2 * at, low, high);
    hn::StoreU(low, d, even + at);
    hn::StoreU(high, d, odd + at);
  }
}

// Short stretches, which a call would take longer for.
template <typename T>
HWY_INLINE void fill(T* to, T value, std::int64_t count) {
  each_vector<T>(count, [&](auto d, std::int64_t i, std::int64_t some) HWY_ATTR {
    store_some(d, hn::Set(d, value), to + i, some);
  });
}
template <typename T>
HWY_INLINE void copy(T* to, const T* from, std::int64_t count) {
  each_vector<T>(count, [&](auto d, std::int64_t i, std::int64_t some) HWY_ATTR {
    store_some(d, load_some(d, from + i, some), to + i, some);
  });
}

template <typename T>
void spread(const WindowLayout& layout, void* room, const void* plane) {
  const cpu::WindowWork& w = layout.work;
  const std::int64_t step = w.stride.width, pitch = layout.pitch;
  // Of two phases, the places that both have go together.
  const bool in_pairs = step == 2 && layout.phases.size() == 2;
  const std::int64_t pair = in_pairs ? layout.phases[0].first : 0;
  const std::int64_t last_pair = in_pairs ? std::max(pair, layout.phases[1].last) : 0;
  T* to = static_cast<T*>(room);
  for (std::int64_t r = 0; r < layout.rows; ++r) {
    const std::int64_t y = r - w.padding.height;
    if (y < 0 || y >= w.height) {
      to = std::fill_n(to, layout.row_elements, T(0));
      continue;
    }
    const T* const row = static_cast<const T*>(plane) + y * w.width;
    if (in_pairs)
      copy_pairs(to + pair, to + pitch + pair, row + layout.phases[0].x0 + 2 * pair,
                 last_pair - pair);
    for (const WindowLayout::Phase& phase : layout.phases) {
      fill(to, T(0), phase.first);
      if (step == 1)
        copy(to + phase.first, row + phase.x0 + phase.first, phase.last - phase.first);
      else
        for (std::int64_t i = phase.first; i < phase.last; ++i) {
          if (in_pairs && i == pair) i = last_pair;
          if (i < phase.last) to[i] = row[phase.x0 + i * step];
        }
      fill(to + phase.last, T(0), pitch - phase.last);
      to += pitch;
    }
  }
}

// Vectors of windows that stay in registers, and where each of them is: `step` elements on from the
// one before in the plane, and `out_step` in the result.
struct Vectors {
  std::int64_t step, out_step;
  std::int64_t count;       // of vectors
  std::int64_t kept, last;  // windows kept of each, and of the last
};
// Vectors that are missing are the last one again.
template <int kVectors, class D, typename T = hn::TFromD<D>>
HWY_INLINE void some_windows(D d, const WindowLayout& layout, T* out, const T* row, const T* taps,
                             T start, const Vectors& vectors) {
  using V = hn::Vec<D>;
  const std::int64_t* const places = layout.places.data();
  const auto width = static_cast<std::int64_t>(layout.places.size());
#define TENON_VECTORS(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#define TENON_VECTOR(v)            \
  V found##v = hn::Set(d, start); \
  const std::int64_t at##v = std::min<std::int64_t>(v, vectors.count - 1) * vectors.step;
  TENON_VECTORS(TENON_VECTOR)
#undef TENON_VECTOR
  for (std::int64_t ky = 0; ky < layout.work.kernel.height; ++ky) {
    for (std::int64_t kx = 0; kx < width; ++kx) {
      const T* const x = row + places[kx];
      const V factor = hn::Set(d, *taps++);
#define TENON_VECTOR(v) \
  if (kVectors > v) found##v = hn::MulAdd(factor, hn::LoadU(d, x + at##v), found##v);
      TENON_VECTORS(TENON_VECTOR)
#undef TENON_VECTOR
    }
    row += layout.work.dilation.height * layout.row_elements;
  }
#define TENON_VECTOR(v)                        \
  if (kVectors > v && v < vectors.count)       \
    store_some(d, found##v, out + v * vectors.out_step, \
               v == vectors.count - 1 ? vectors.last : vectors.kept);
  TENON_VECTORS(TENON_VECTOR)
#undef TENON_VECTOR
#undef TENON_VECTORS
}

template <class D>
HWY_INLINE void walk_by(D d, const WindowLayout& layout, void* out, const void* room,
                        const void* taps, const void* bias) {
  using T = hn::TFromD<D>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const cpu::WindowWork& w = layout.work;
  const T start = bias != nullptr ? *static_cast<const T*>(bias) : T(0);
  const std::int64_t pitch = w.stride.height * layout.row_elements;
  const auto run = [&](std::int64_t y, std::int64_t x, const Vectors& vectors) {
    T* const to = static_cast<T*>(out) + y * w.out_width + x;
    const T* const row = static_cast<const T*>(room) + y * pitch + x;
    const auto* const factors = static_cast<const T*>(taps);
    if (vectors.count > 4)
      some_windows<8>(d, layout, to, row, factors, start, vectors);
    else if (vectors.count > 2)
      some_windows<4>(d, layout, to, row, factors, start, vectors);
    else if (vectors.count > 1)
      some_windows<2>(d, layout, to, row, factors, start, vectors);
    else
      some_windows<1>(d, layout, to, row, factors, start, vectors);
  };
  // One vector alone would wait for each sum before the next: several rows of the result go
  // together, or vectors of one row.
  constexpr std::int64_t kTogether = 8, kLeastTogether = 4;
  if (w.out_height >= kLeastTogether || w.out_width <= lanes) {
    for (std::int64_t y = 0; y < w.out_height; y += kTogether)
      for (std::int64_t x = 0; x < w.out_width; x += lanes) {
        const std::int64_t kept = std::min(lanes, w.out_width - x);
        run(y, x, {pitch, w.out_width, std::min(kTogether, w.out_height - y), kept, kept});
      }
    return;
  }
  for (std::int64_t y = 0; y < w.out_height; ++y)
    for (std::int64_t x = 0; x < w.out_width; x += kTogether * lanes) {
      const std::int64_t rest = w.out_width - x;
      const std::int64_t count = std::min(kTogether, (rest + lanes - 1) / lanes);
      run(y, x, {lanes, lanes, count, lanes, std::min(lanes, rest - (count - 1) * lanes)});
    }
}

// Loads of half a vector cross fewer lines of the cache.
template <typename T>
void walk(const WindowLayout& layout, void* out, const void* room, const void* taps,
          const void* bias) {
  const hn::ScalableTag<T> d;
#if HWY_TARGET == HWY_AVX3
  const hn::Half<decltype(d)> half;
  if (layout.work.out_width <= static_cast<std::int64_t>(hn::Lanes(half)))
    return walk_by(half, layout, out, room, taps, bias);
#endif
  walk_by(d, layout, out, room, taps, bias);
}

}  // namespace

cpu::WindowKernels window_kernels(DType dtype) {
  if (dtype == DType::kF64) return {&spread<double>, &walk<double>};
  return {&spread<float>, &walk<float>};
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(window_kernels);

namespace {

// The spread plane is at most some times as large as the plane and the result. Looked at without
// overflow: sizes of kernels and paddings are the caller's.
bool is_small(const cpu::WindowWork& w) {
  const auto real = [](std::int64_t number) { return static_cast<double>(number); };
  constexpr double kTimes = 4, kAlways = 1 << 16;
  const double reach = real(w.kernel.width - 1) * real(w.dilation.width) + 1;
  const double phases = std::min(real(w.stride.width), reach);
  const double height = real(w.height) + 2 * real(w.padding.height);
  const double width = real(w.width) + 2 * real(w.padding.width) +
                       phases * static_cast<double>(cpu::WindowLayout::kVector);
  const double given = real(w.height) * real(w.width) + real(w.out_height) * real(w.out_width);
  return height * width <= kTimes * given + kAlways;
}

}  // namespace

bool cpu::walk_windows(const WindowWork& work, void* out, const void* in, std::int64_t planes,
                       std::int64_t channels, std::int64_t filters, const void* taps,
                       const void* bias) {
  if (!is_small(work)) return false;
  const WindowLayout layout(work);
  const WindowKernels kernels = HWY_DYNAMIC_DISPATCH(window_kernels)(work.dtype);
  const auto item = static_cast<std::int64_t>(item_size(work.dtype));
  const std::int64_t out_bytes = work.out_height * work.out_width * item;
  const std::int64_t tap_bytes = work.kernel.height * work.kernel.width * item;
  const auto at = [](const void* data, std::int64_t bytes) {
    return data == nullptr ? data : static_cast<const char*>(data) + bytes;
  };
  Workspaces rooms(static_cast<std::size_t>(layout.rows * layout.row_elements * item), planes);
  const std::int64_t taken = work.out_height * work.out_width * work.kernel.height *
                             work.kernel.width * filters;
  parallel_for(0, planes, std::max<std::int64_t>(1, (1 << 17) / taken),
               [&](std::int64_t begin, std::int64_t end) {
                 char* const room = rooms.take();
                 for (std::int64_t plane = begin; plane < end; ++plane) {
                   kernels.spread(layout, room, at(in, plane * work.height * work.width * item));
                   for (std::int64_t f = 0; f < filters; ++f) {
                     const std::int64_t filter = plane % channels * filters + f;
                     char* const to =
                         static_cast<char*>(out) + (plane * filters + f) * out_bytes;
                     kernels.walk(layout, to, room, at(taps, filter * tap_bytes),
                                  at(bias, filter * item));
                   }
                 }
                 rooms.give(room);
               });
  return true;
}

}  // namespace tenon::ops
#endif
