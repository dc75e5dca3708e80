// A row's elements become unsigned numbers of the same order, their keys, each above the number of
// its place. A sort by digits takes as many passes as the keys have bytes that differ.
#include "tenon/ops/kernels/cpu/row_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <utility>

#include "tenon/base/align.h"
#include "tenon/tensor/half_rows.h"

namespace tenon::ops::cpu {
namespace {

// The unsigned number of T's bits.
template <typename T>
using Bits = std::conditional_t<
    sizeof(T) == 8, std::uint64_t,
    std::conditional_t<sizeof(T) == 4, std::uint32_t,
                       std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;

// Numbers that compare as the elements do: both zeros are one, and all NaN.
template <typename T>
Bits<T> ordered(T element) {
  using B = Bits<T>;
  constexpr B sign = static_cast<B>(B(1) << (8 * sizeof(B) - 1));
  const auto bits = std::bit_cast<B>(element);
  if constexpr (std::is_floating_point_v<T> || kIsHalf<T>) {
    constexpr B infinity = std::is_same_v<T, Half>       ? 0x7c00
                           : std::is_same_v<T, BFloat16> ? 0x7f80
                           : sizeof(T) == 4 ? static_cast<B>(0x7f800000)
                                            : static_cast<B>(0x7ff0000000000000);
    const B size = bits & static_cast<B>(~sign);
    // No branch on the sign: it would be mispredicted half of the time.
    const B negative = static_cast<B>(size == 0 ? 0 : B(0) - (bits >> (8 * sizeof(B) - 1)));
    const B number = static_cast<B>((negative | sign) ^ (bits & (negative | size)));
    return size > infinity ? static_cast<B>(~B(0)) : number;
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<B>(bits ^ sign);
  } else {
    return bits;
  }
}

// Numbers that are a key above a place. Sorts by the keys, which begin at the bit `shift` and have
// `bits`: stably, so places need no look. Returns where the result is: in `from` or in `to`.
std::uint64_t* sort_by_digits(std::uint64_t* from, std::uint64_t* to, std::int64_t count, int shift,
                              int bits) {
  constexpr int kDigit = 8, kValues = 1 << kDigit;
  constexpr std::size_t kMost = 8;
  const auto passes = static_cast<std::size_t>((bits + kDigit - 1) / kDigit);
  std::array<std::array<std::int64_t, kValues>, kMost> ends;
  for (std::size_t p = 0; p < passes; ++p) ends[p].fill(0);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t key = from[i] >> shift;
    for (std::size_t p = 0; p < passes; ++p, key >>= kDigit) ++ends[p][key % kValues];
  }
  for (std::size_t p = 0; p < passes; ++p, shift += kDigit) {
    std::int64_t* const at = ends[p].data();
    std::int64_t before = 0;
    for (int v = 0; v < kValues; ++v) before += std::exchange(at[v], before);
    for (std::int64_t i = 0; i < count; ++i) to[at[(from[i] >> shift) % kValues]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

// The keys of a row above the places. Of keys that leave no room for the places, only the highest
// bits: who needs more looks at the row.
template <typename T>
struct Keys {
  using B = Bits<T>;
  const T* row;
  B flip;  // all ones where the order is decreasing
  B lowest = static_cast<B>(~B(0));
  int bits = 0, place_bits = 0, dropped = 0;

  Keys(const T* elements, std::int64_t length, bool descending)
      : row(elements), flip(descending ? static_cast<B>(~B(0)) : B(0)) {
    B highest = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      const B key = of(i);
      lowest = std::min(lowest, key), highest = std::max(highest, key);
    }
    bits = std::bit_width(static_cast<B>(highest - lowest));
    place_bits = std::bit_width(static_cast<std::uint64_t>(length - 1));
    dropped = std::max(0, bits + place_bits - 64);
    bits -= dropped;
  }
  B of(std::int64_t place) const { return static_cast<B>(ordered(row[place]) ^ flip); }
  std::uint64_t above(std::int64_t place) const {
    const auto key = static_cast<std::uint64_t>(static_cast<B>(of(place) - lowest));
    return key >> dropped << place_bits | static_cast<std::uint64_t>(place);
  }
  std::int64_t place(std::uint64_t number) const {
    return static_cast<std::int64_t>(number & ((std::uint64_t{1} << place_bits) - 1));
  }
  bool comes_first(std::uint64_t a, std::uint64_t b) const {
    if (dropped == 0 || (a ^ b) >> place_bits != 0) return a < b;
    const B x = of(place(a)), y = of(place(b));
    return x != y ? x < y : a < b;
  }
};

template <typename T>
void order(const T* row, std::int64_t length, std::int64_t wanted, bool descending,
           std::int64_t* places, char* room) {
  const Keys<T> keys(row, length, descending);
  const auto comes_first = [&](std::uint64_t a, std::uint64_t b) { return keys.comes_first(a, b); };
  auto* all = reinterpret_cast<std::uint64_t*>(room);
  for (std::int64_t i = 0; i < length; ++i) all[i] = keys.above(i);
  // What a pass and its 256 counters take, beside comparisons.
  const int passes = (keys.bits + 7) / 8;
  const std::int64_t comparisons = std::bit_width(static_cast<std::uint64_t>(wanted));
  const bool by_digits = length > 32 && passes * (length + 128) < length * comparisons;
  if (by_digits) {
    all = sort_by_digits(all, all + length, length, keys.place_bits, keys.bits);
  } else {
    if (wanted < length) std::nth_element(all, all + wanted, all + length, comes_first);
    std::sort(all, all + wanted);
  }
  const std::int64_t sorted = by_digits ? length : wanted;
  for (std::int64_t i = 0, end = 0; keys.dropped > 0 && i < wanted; i = end) {
    for (end = i + 1; end < sorted && (all[i] ^ all[end]) >> keys.place_bits == 0;) ++end;
    if (end > i + 1) std::sort(all + i, all + end, comes_first);
  }
  for (std::int64_t i = 0; i < wanted; ++i) places[i] = keys.place(all[i]);
}

template <typename T>
struct Place {
  T value;
  std::int64_t index;
};

template <bool kDescending>
struct ComesFirst {
  template <typename T>
  bool operator()(const Place<T>& x, const Place<T>& y) const {
    const auto a = ordered(x.value), b = ordered(y.value);
    return a != b ? (kDescending ? a > b : a < b) : x.index < y.index;
  }
};

// Few of a long row: the best so far are kept in order or, if they are more, in a heap. Most
// elements are passed over by comparing them with the worst of these, a block at a time.
template <bool kDescending, typename T>
void choose(const T* row, std::int64_t length, std::int64_t wanted, std::int64_t* indices,
            char* room) {
  constexpr std::int64_t kBlock = 16, kInOrder = 32;
  const ComesFirst<kDescending> comes_first;
  auto* const places = reinterpret_cast<Place<T>*>(room);
  const bool in_order = wanted <= kInOrder;
  for (std::int64_t i = 0; i < wanted; ++i) places[i] = {row[i], i};
  in_order ? std::sort(places, places + wanted, comes_first)
           : std::make_heap(places, places + wanted, comes_first);
  const Place<T>& worst = places[in_order ? wanted - 1 : 0];
  for (std::int64_t first = wanted; first < length; first += kBlock) {
    const std::int64_t last = std::min(length, first + kBlock);
    const T limit = worst.value;
    int any = 0;  // a NaN counts
    for (std::int64_t i = first; i < last; ++i)
      any |= static_cast<int>(kDescending ? !(row[i] <= limit) : !(row[i] >= limit));
    for (std::int64_t i = any != 0 ? first : last; i < last; ++i) {
      const Place<T> place{row[i], i};
      if (!comes_first(place, worst)) continue;
      std::int64_t at = wanted - 1;
      if (in_order)
        for (; at > 0 && comes_first(place, places[at - 1]); --at) places[at] = places[at - 1];
      else
        std::pop_heap(places, places + wanted, comes_first);
      places[at] = place;
      if (!in_order) std::push_heap(places, places + wanted, comes_first);
    }
  }
  if (!in_order) std::sort_heap(places, places + wanted, comes_first);
  for (std::int64_t i = 0; i < wanted; ++i) indices[i] = places[i].index;
}

bool are_few(std::int64_t wanted, std::int64_t length) {
  return wanted * (wanted <= 8 ? 4 : 16) <= length;
}

}  // namespace

std::size_t row_order_room(std::int64_t length) {
  // Two arrays of keys; or, for few of many, a row of f32 and an array of places.
  return static_cast<std::size_t>(length) * 2 * sizeof(std::uint64_t) + 64;
}

void row_order(DType dtype, const void* row, std::int64_t length, std::int64_t wanted,
               bool descending, std::int64_t* places, char* room) {
  visit_dtype(dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, Complex64> && !std::is_same_v<T, Complex128>) {
      const auto* const elements = static_cast<const T*>(row);
      if (!are_few(wanted, length))
        return order(elements, length, wanted, descending, places, room);
      const auto few = [&](const auto* from, char* rest) {
        descending ? choose<true>(from, length, wanted, places, rest)
                   : choose<false>(from, length, wanted, places, rest);
      };
      if constexpr (kIsHalf<T>) {
        auto* const wide = reinterpret_cast<float*>(room);
        tenon::detail::convert_dense(wide, elements, length);
        few(wide, room + align_up(static_cast<std::size_t>(length) * sizeof(float), 64));
      } else {
        few(elements, room);
      }
    }
  });
}

}  // namespace tenon::ops::cpu
