// Reductions over some dimensions, gathered in NUMBER: an invocation gathers one piece of what one
// kept element reduces. Pieces have a fixed length and are combined in order by a second run.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "numbers.glsl"

layout(local_size_x = 64) in;

layout(constant_id = 0) const uint kKind = 0;    // Gather in ops/reduce.h; 10: argmax, 11: argmin
layout(constant_id = 1) const uint kDType = 0;   // of the elements
layout(constant_id = 2) const uint kShifts = 0;  // 1: numbers that are taken from the elements

layout(push_constant, std430) uniform Arguments {
  uvec2 target;  // NUMBER [pieces, kept]; of argmax i64 [kept]
  uvec2 source;
  uvec2 shifts;  // NUMBER [kept]
  uint kept;
  uint reduced;
  uint piece;  // the most elements of one
  uint pieces;
  uint kept_sizes[4];     // innermost first
  uint reduced_sizes[4];
  int kept_strides[4];    // in elements
  int reduced_strides[4];
};

const uint kSum = 0, kProduct = 1, kLargest = 2, kSmallest = 3, kSquares = 4, kExponentials = 5;

NUMBER plain(uvec2 base, int at) {
#if CLASS == 0
  return uintBitsToFloat(Words(base).at[at]);
#elif CLASS == 1
  return packDouble2x32(Pairs(base).at[at]);
#elif CLASS == 2
  return int64_t(packUint2x32(Pairs(base).at[at]));
#else
  return int(Words(base).at[at]);
#endif
}
void put(uvec2 base, uint at, NUMBER x) {
#if CLASS == 0
  Words(base).at[at] = floatBitsToUint(x);
#elif CLASS == 1
  Pairs(base).at[at] = unpackDouble2x32(x);
#elif CLASS == 2
  Pairs(base).at[at] = unpackUint2x32(uint64_t(x));
#else
  Words(base).at[at] = uint(x);
#endif
}

int offset_of(uint index, uint sizes[4], int strides[4]) {
  int offset = 0;
  for (int d = 0; d < 4; ++d) {
    offset += int(index % sizes[d]) * strides[d];
    index /= sizes[d];
  }
  return offset;
}

bool is_number(NUMBER x) {
#if CLASS < 2
  return !isnan(x);
#else
  return true;
#endif
}

NUMBER nothing() {
  if (kKind == kProduct) return NUMBER(1);
#if CLASS < 2
  if (kKind == kLargest) return -infinity();
  if (kKind == kSmallest) return infinity();
#elif CLASS == 2
  if (kKind == kLargest) return int64_t(packUint2x32(uvec2(0, 0x80000000u)));
  if (kKind == kSmallest) return int64_t(packUint2x32(uvec2(~0u, 0x7fffffffu)));
#else
  if (kKind == kLargest) return int(0x80000000u);
  if (kKind == kSmallest) return 0x7fffffff;
#endif
  return NUMBER(0);
}

// NaN comes before all others.
bool beats(NUMBER a, NUMBER b, bool largest) {
  if (!is_number(a)) return is_number(b);
  return largest ? a > b : a < b;
}

void find_extreme(uint kept_index, int base) {
  uint best = 0;
  NUMBER found = load(source, base, kDType);
  for (uint i = 1; i < reduced; ++i) {
    const NUMBER x = load(source, base + offset_of(i, reduced_sizes, reduced_strides), kDType);
    if (beats(x, found, kKind == 10)) {
      best = i;
      found = x;
    }
  }
  Pairs(target).at[kept_index] = uvec2(best, 0);
}

void main() {
  const uint count = kept * pieces;
  for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    const uint kept_index = i % kept;
    const int base = offset_of(kept_index, kept_sizes, kept_strides);
    if (kKind >= 10) {
      find_extreme(kept_index, base);
      continue;
    }
    const NUMBER shift = kShifts == 0 ? NUMBER(0) : plain(shifts, int(kept_index));
    const uint first = i / kept * piece, end = min(first + piece, reduced);
    NUMBER held = nothing();
#if CLASS == 0
    float lost = 0.0;  // of the sum, by rounding (Kahan)
#endif
    for (uint j = first; j < end; ++j) {
      NUMBER x = load(source, base + offset_of(j, reduced_sizes, reduced_strides), kDType);
      switch (kKind) {
        case kProduct: held *= x; continue;
        case kLargest:
        case kSmallest:
          if (is_number(held) && (!is_number(x) || (kKind == kLargest ? x > held : x < held)))
            held = x;
          continue;
        case kSquares: x -= shift; x *= x; break;
#if CLASS < 2
        case kExponentials: x = isnan(x - shift) ? x - shift : exponential(x - shift); break;
#endif
      }
#if CLASS == 0
      precise const float mended = x - lost, sum = held + mended;
      precise const float rest = (sum - held) - mended;
      lost = isnan(rest) || isinf(rest) ? 0.0 : rest;
      held = sum;
#else
      held += x;
#endif
    }
    put(target, i, held);
  }
}
