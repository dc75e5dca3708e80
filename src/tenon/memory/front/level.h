// A quantity and the highest it has been, counted in one instruction or two.
#pragma once

#include <cstdint>

namespace tenon {

// Two numbers that are counted together: of blocks, and of their bytes. Every processor that
// Tenon runs on adds such a pair at once (SSE2, NEON).
using Pair = std::int64_t __attribute__((vector_size(16)));

inline bool any_negative(Pair pair) {
#if defined(__SSE2__)
  using Signs = double __attribute__((vector_size(16)));
  return __builtin_ia32_movmskpd(reinterpret_cast<Signs>(pair)) != 0;  // one instruction
#else
  return (pair[0] | pair[1]) < 0;
#endif
}

// Note [room under the peak]: what is kept is how far a level is below its peak. So a new peak is a
// negative value, tested for all that were counted at once, and only then is there more to do:
// settle(). T: std::int64_t or Pair.
template <typename T>
struct Level {
  T peak = {};
  T room = {};  // peak - current; the level rises as it shrinks

  T current() const { return peak - room; }
  // A negative room becomes none, under a peak that is higher by as much.
  void settle() {
    const T beyond = room & (room < 0 ? ~T{} : T{});
    peak -= beyond;
    room -= beyond;
  }
  // The peak becomes the current level.
  void reset_peak() {
    peak -= room;
    room = T{};
  }
};

}  // namespace tenon
