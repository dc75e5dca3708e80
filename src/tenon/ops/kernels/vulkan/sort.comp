// Rows in order: each element counts those that come before it, and goes to that place.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "numbers.glsl"

layout(local_size_x = 64) in;

layout(constant_id = 0) const uint kDType = 0;
layout(constant_id = 1) const uint kDescending = 0;

layout(push_constant, std430) uniform Arguments {
  uvec2 values, indices;  // [rows, wanted]; the indices of i64
  uvec2 source;           // [rows, length], dense
  uint rows, length, wanted;
};

// In increasing order, NaN behind all others.
bool before(NUMBER a, NUMBER b) {
#if CLASS < 2
  return isnan(b) ? !isnan(a) : a < b;
#else
  return a < b;
#endif
}

void main() {
  const uint count = rows * length;
  for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    const uint row = i / length, own = i % length;
    const NUMBER x = load(source, int(i), kDType);
    uint place = 0;
    for (uint j = 0; j < length; ++j) {
      const NUMBER y = load(source, int(row * length + j), kDType);
      const bool first = kDescending != 0 ? before(x, y) : before(y, x);
      const bool last = kDescending != 0 ? before(y, x) : before(x, y);
      if (first || (!last && j < own)) ++place;
    }
    if (place >= wanted) continue;
    store(values, int(row * wanted + place), kDType, x);
    Pairs(indices).at[row * wanted + place] = uvec2(own, 0);
  }
}
