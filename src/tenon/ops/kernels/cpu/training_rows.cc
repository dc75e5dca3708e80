// Plain loops, compiled once for each instruction set and vectorised by the compiler, and vectors
// of Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/training_rows.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
// clang-format on

#include <algorithm>
#include <cmath>

#include "tenon/ops/kernels/cpu/training_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kLanes = 16;  // sums are taken in this many, on every machine

float sum_lanes(const float* lanes) {
  float sum = 0;
  for (int l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

void softmax(float* dx, const float* dy, const float* __restrict y, std::int64_t count,
             float scale) {
  float sums[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int l = 0; l < kLanes; ++l) sums[l] += dy[i + l] * y[i + l];
  for (; i < count; ++i) sums[i % kLanes] += dy[i] * y[i];
  const float sum = sum_lanes(sums);
#pragma GCC ivdep
  for (i = 0; i < count; ++i) dx[i] = y[i] * (dy[i] - sum) * scale;
}

// `count` elements of even places, and those beside them.
template <class D>
struct Pairs {
  Pairs(D d, const float* from, std::int64_t count) {
#if HWY_TARGET == HWY_SCALAR
    even = load_some(d, from, count);
    odd = load_some(d, from + 1, count);
#else
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto low = load_some(d, from, 2 * count);
    const auto high =
        2 * count <= lanes ? hn::Zero(d) : load_some(d, from + lanes, 2 * count - lanes);
    even = hn::ConcatEven(d, high, low);
    odd = hn::ConcatOdd(d, high, low);
#endif
  }
  hn::Vec<D> even, odd;
};
template <class D>
HWY_INLINE void store_pairs(D d, hn::Vec<D> even, hn::Vec<D> odd, float* to, std::int64_t count) {
  if (count >= static_cast<std::int64_t>(hn::Lanes(d)))
    return hn::StoreInterleaved2(even, odd, d, to);
  HWY_ALIGN float buffer[2 * hn::MaxLanes(d)];
  hn::StoreInterleaved2(even, odd, d, buffer);
  std::copy_n(buffer, 2 * count, to);
}

bool is_chosen(float value, float best) { return value > best || value != value; }

// Windows of 2 x 2, one beside the other: each element belongs to at most one.
bool is_2x2(const cpu::TrainingRows::Plane& p) {
  return p.kernel_height == 2 && p.kernel_width == 2 && p.stride_height == 2 && p.stride_width == 2;
}

void max_pool_choices_2x2(std::uint8_t* __restrict to, const float* __restrict x,
                          const cpu::TrainingRows::Plane& p) {
  for (std::int64_t i = 0; i < p.out_height; ++i)
    each_vector<float>(p.out_width, [&](auto d, std::int64_t j, std::int64_t n) {
      const hn::RebindToSigned<decltype(d)> integers;
      const hn::Rebind<std::uint8_t, decltype(d)> bytes;
      const float* const row = x + 2 * i * p.width + 2 * j;
      const Pairs above(d, row, n), below(d, row + p.width, n);
      const auto exceeds = [](auto value, auto best) {
        return hn::Or(hn::Gt(value, best), hn::IsNaN(value));
      };
      const auto second = exceeds(above.odd, above.even), fourth = exceeds(below.odd, below.even);
      const auto top = hn::IfThenElse(second, above.odd, above.even);
      const auto bottom = hn::IfThenElse(fourth, below.odd, below.even);
      const auto choice = [&](auto mask, float one, float other) {
        return hn::IfThenElse(mask, hn::Set(d, one), hn::Set(d, other));
      };
      const auto chosen = hn::IfThenElse(exceeds(bottom, top), choice(fourth, 3, 2),
                                         choice(second, 1, 0));
      HWY_ALIGN std::uint8_t some[hn::MaxLanes(bytes)];
      hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(integers, chosen)), bytes, some);
      std::copy_n(some, n, to + i * p.out_width + j);
    });
}

void max_pool_choices(std::uint8_t* to, const float* x, const cpu::TrainingRows::Plane& p) {
  if (is_2x2(p)) return max_pool_choices_2x2(to, x, p);
  for (std::int64_t i = 0; i < p.out_height; ++i)
    for (std::int64_t j = 0; j < p.out_width; ++j) {
      const float* const first = x + i * p.stride_height * p.width + j * p.stride_width;
      float best = *first;
      std::int64_t choice = 0;
      for (std::int64_t y = 0; y < p.kernel_height; ++y)
        for (std::int64_t k = 0; k < p.kernel_width; ++k) {
          const float value = first[y * p.width + k];
          if (!is_chosen(value, best)) continue;
          best = value;
          choice = y * p.kernel_width + k;
        }
      to[i * p.out_width + j] = static_cast<std::uint8_t>(choice);
    }
}

void max_pool_gradient_2x2(float* __restrict dx, const float* __restrict dy,
                           const std::uint8_t* __restrict choices,
                           const cpu::TrainingRows::Plane& p) {
  if (p.height != 2 * p.out_height || p.width != 2 * p.out_width)
    std::fill_n(dx, p.height * p.width, 0.0f);
  for (std::int64_t i = 0; i < p.out_height; ++i)
    each_vector<float>(p.out_width, [&](auto d, std::int64_t j, std::int64_t n) {
      const hn::RebindToSigned<decltype(d)> integers;
      const hn::Rebind<std::uint8_t, decltype(d)> bytes;
      HWY_ALIGN std::uint8_t some[hn::MaxLanes(bytes)] = {};
      std::copy_n(choices + i * p.out_width + j, n, some);
      const auto chosen = hn::ConvertTo(d, hn::PromoteTo(integers, hn::Load(bytes, some)));
      const auto g = load_some(d, dy + i * p.out_width + j, n);
      const auto where = [&](float choice) {
        return hn::IfThenElseZero(hn::Eq(chosen, hn::Set(d, choice)), g);
      };
      float* const to = dx + 2 * i * p.width + 2 * j;
      store_pairs(d, where(0), where(1), to, n);
      store_pairs(d, where(2), where(3), to + p.width, n);
    });
}

void max_pool_gradient(float* dx, const float* dy, const std::uint8_t* choices,
                       const cpu::TrainingRows::Plane& p) {
  if (is_2x2(p)) return max_pool_gradient_2x2(dx, dy, choices, p);
  std::fill_n(dx, p.height * p.width, 0.0f);
  for (std::int64_t i = 0; i < p.out_height; ++i)
    for (std::int64_t j = 0; j < p.out_width; ++j) {
      const std::int64_t window = i * p.out_width + j, choice = choices[window];
      const std::int64_t first = i * p.stride_height * p.width + j * p.stride_width;
      dx[first + choice / p.kernel_width * p.width + choice % p.kernel_width] += dy[window];
    }
}

// --- One bit for an element. Vectors of four elements share a byte in pairs.

void passing_bits(std::uint8_t* bits, const float* x, std::int64_t count) {
  const hn::CappedTag<float, 8> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    std::uint8_t byte = 0;
    for (std::int64_t part = 0; part < 8; part += lanes) {
      std::uint8_t some[8] = {};
      hn::StoreMaskBits(d, hn::Not(hn::Le(hn::LoadU(d, x + i + part), zero)), some);
      byte = static_cast<std::uint8_t>(byte | some[0] << part);
    }
    bits[i / 8] = byte;
  }
  if (i == count) return;
  bits[i / 8] = 0;
  for (std::int64_t k = 0; i + k < count; ++k)
    bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | (x[i + k] <= 0 ? 0 : 1) << k);
}

void where_passing(float* dx, const float* dy, const std::uint8_t* bits, std::int64_t count) {
  const hn::CappedTag<float, 8> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (std::int64_t part = 0; part < 8; part += lanes) {
      const std::uint8_t some[8] = {static_cast<std::uint8_t>(bits[i / 8] >> part)};
      const auto mask = hn::LoadMaskBits(d, some);
      hn::StoreU(hn::IfThenElseZero(mask, hn::LoadU(d, dy + i + part)), d, dx + i + part);
    }
  for (; i < count; ++i) dx[i] = (bits[i / 8] >> (i % 8) & 1) != 0 ? dy[i] : 0.0f;
}

}  // namespace

const cpu::TrainingRows& training_rows() {
  static constexpr cpu::TrainingRows kRows = {&softmax, &max_pool_choices, &max_pool_gradient,
                                              &passing_bits, &where_passing};
  return kRows;
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(training_rows);

const cpu::TrainingRows& cpu::training_rows() { return HWY_DYNAMIC_DISPATCH(training_rows)(); }

}  // namespace tenon::ops
#endif
