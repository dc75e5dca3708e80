// Loops over dense blocks for functions that Highway has vector forms of. Included once for each
// instruction set, so without a plain include guard.
//
// A vector form has a range in which it is accurate to a few units in the last place. Vectors with
// a lane outside it (overflow, NaN, negative logarithms) are computed again lane by lane, each by
// the form that holds for it, the C library's where the vector form does not: every result is
// right, the usual ones are fast, and no lane's result depends on its neighbours.
//
// An operation Op has
//   apply(d, x)    the vector form
//   holds(d, x)    the lanes for which it is right; not those that are NaN
//   scalar(x)      the form for all others
// or the same of (x, y), and takes the operator's numbers at construction if it needs any.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

#if defined(TENON_OPS_VECTOR_LOOP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_OPS_VECTOR_LOOP_INL_H
#undef TENON_OPS_VECTOR_LOOP_INL_H
#else
#define TENON_OPS_VECTOR_LOOP_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

// Above it exp overflows.
template <typename T>
constexpr T kExpLimit = sizeof(T) == 4 ? T(88.0) : T(706.0);

// Whether a load or a store leaves the memory of lanes that its mask excludes alone.
constexpr bool kMaskedIsExact = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2;

// The first `count` elements, at most a vector's; the other lanes are 0.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load_some(D d, const hwy::HWY_NAMESPACE::TFromD<D>* from,
                                                std::int64_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (count >= static_cast<std::int64_t>(hn::Lanes(d))) return hn::LoadU(d, from);
  if constexpr (kMaskedIsExact)
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, from);
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(d)] = {};
  for (std::int64_t i = 0; i < count; ++i) buffer[i] = from[i];
  return hn::Load(d, buffer);
}
template <class D>
HWY_INLINE void store_some(D d, hwy::HWY_NAMESPACE::Vec<D> value,
                           hwy::HWY_NAMESPACE::TFromD<D>* to, std::int64_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (count >= static_cast<std::int64_t>(hn::Lanes(d))) return hn::StoreU(value, d, to);
  if constexpr (kMaskedIsExact)
    return hn::BlendedStore(value, hn::FirstN(d, static_cast<std::size_t>(count)), d, to);
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(d)];
  hn::Store(value, d, buffer);
  for (std::int64_t i = 0; i < count; ++i) to[i] = buffer[i];
}

// f(d, i, lanes) for all elements, a vector's or the rest of them at a time.
template <typename T, typename F>
HWY_INLINE void each_vector(std::int64_t count, F&& f) {
  const hwy::HWY_NAMESPACE::ScalableTag<T> d;
  const auto step = static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= count; i += step) f(d, i, step);
  if (i < count) f(d, i, count - i);
}

template <class Op>
Op made_with(const double* numbers) {
  if constexpr (std::is_constructible_v<Op, const double*>)
    return Op(numbers);
  else
    return Op();
}

// `lanes` elements of each input, at most a vector's; what is missing is filled with ones.
template <class Op, class D, class... In>
HWY_INLINE void one_vector(D d, const Op& op, hwy::HWY_NAMESPACE::TFromD<D>* out, std::size_t lanes,
                           const In*... in) {
  namespace hn = hwy::HWY_NAMESPACE;
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  const std::size_t full = hn::Lanes(d);
  const auto load = [&](const T* from) -> V {
    if (HWY_LIKELY(lanes == full)) return hn::LoadU(d, from);
    HWY_ALIGN T buffer[hn::MaxLanes(d)];
    for (std::size_t i = 0; i < full; ++i) buffer[i] = i < lanes ? from[i] : T(1);
    return hn::Load(d, buffer);
  };
  const auto compute = [&](auto... x) {
    HWY_ALIGN T results[hn::MaxLanes(d)];
    const auto right = op.holds(d, x...);
    if (HWY_LIKELY(hn::AllTrue(d, right))) {
      if (lanes == full) return hn::StoreU(op.apply(d, x...), d, out);
      hn::Store(op.apply(d, x...), d, results);
      for (std::size_t i = 0; i < lanes; ++i) out[i] = results[i];
      return;
    }
    HWY_ALIGN T held[hn::MaxLanes(d)];
    hn::Store(op.apply(d, x...), d, results);
    hn::Store(hn::IfThenElseZero(right, hn::Set(d, T(1))), d, held);
    // The output may be one of the inputs: read all of an element, then write it.
    for (std::size_t i = 0; i < lanes; ++i)
      out[i] = held[i] != 0 ? results[i] : op.scalar(in[i]...);
  };
  compute(load(in)...);
}

// A BlockFunction of one input, or of two.
template <class Op, typename T>
void run_vectors(void* out, const void* const* in, std::int64_t count, const double* numbers) {
  const hwy::HWY_NAMESPACE::ScalableTag<T> d;
  const auto* a = static_cast<const T*>(in[0]);
  auto* result = static_cast<T*>(out);
  const std::size_t step = hwy::HWY_NAMESPACE::Lanes(d);
  const auto n = static_cast<std::size_t>(count);
  const Op op = made_with<Op>(numbers);
  std::size_t i = 0;
  for (; i + step <= n; i += step) one_vector(d, op, result + i, step, a + i);
  if (i < n) one_vector(d, op, result + i, n - i, a + i);
}
template <class Op, typename T>
void run_vector_pairs(void* out, const void* const* in, std::int64_t count, const double* numbers) {
  const hwy::HWY_NAMESPACE::ScalableTag<T> d;
  const auto* a = static_cast<const T*>(in[0]);
  const auto* b = static_cast<const T*>(in[1]);
  auto* result = static_cast<T*>(out);
  const std::size_t step = hwy::HWY_NAMESPACE::Lanes(d);
  const auto n = static_cast<std::size_t>(count);
  const Op op = made_with<Op>(numbers);
  std::size_t i = 0;
  for (; i + step <= n; i += step) one_vector(d, op, result + i, step, a + i, b + i);
  if (i < n) one_vector(d, op, result + i, n - i, a + i, b + i);
}

}  // namespace
}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
