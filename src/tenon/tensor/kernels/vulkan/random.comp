// Random numbers: those of the host (tensor/random.cc), two for each counter of Philox4x32-10.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "numbers.glsl"
#include "sine.glsl"

layout(local_size_x = 64) in;

layout(constant_id = 0) const uint kKind = 0;   // RandomKind in random_numbers.h
layout(constant_id = 1) const uint kDType = 0;  // of the target
layout(constant_id = 2) const uint kChanges = 0;  // whether `start` and `key` lie in memory

layout(push_constant, std430) uniform Arguments {
  uvec2 target;
  uvec2 start;  // the first counter, or where that and the key are
  uvec2 key;
  uvec2 first, second;  // numbers of the kind
  uint count;
};

uvec4 philox(uvec4 c, uvec2 k) {
  for (int round = 0; round < 10; ++round) {
    uint a_high, a_low, b_high, b_low;
    umulExtended(c.x, 0xD2511F53u, a_high, a_low);
    umulExtended(c.z, 0xCD9E8D57u, b_high, b_low);
    c = uvec4(b_high ^ c.y ^ k.x, b_low, a_high ^ c.w ^ k.y, a_low);
    k += uvec2(0x9E3779B9u, 0xBB67AE85u);
  }
  return c;
}

// Uniform in [0, 1), with as many bits as the target's dtype keeps below 1.
NUMBER unit(uvec2 bits) {
  if (kDType == kF16) return NUMBER(bits.x >> 21) * L(4.8828125e-4lf);
  if (kDType == kBF16) return NUMBER(bits.x >> 24) * L(3.90625e-3lf);
  return NUMBER(bits.x >> 8) * L(5.9604644775390625e-8lf);
}

#if CLASS == 1
double number(uvec2 bits) { return packDouble2x32(bits); }
// With the 53 bits of an f64.
double unit64(uvec2 bits) {
  return (double(bits.x) * 2097152.0lf + double(bits.y >> 11)) * 1.1102230246251565404e-16lf;
}
double uniform_number(uvec2 bits) {
  precise const double scaled =
      number(first) + number(second) * (kDType == kF64 ? unit64(bits) : unit(bits));
  return scaled;
}
// Box and Muller.
dvec2 normal_pair(uvec4 bits) {
  precise const double radius =
      number(second) * sqrt(-2.0lf * logarithm(1.0lf - unit64(bits.xy)));
  precise const double angle = 6.28318530717958647692lf * unit64(bits.zw);
  precise const dvec2 both = dvec2(number(first) + radius * sine(angle, 1),
                                   number(first) + radius * sine(angle, 0));
  return both;
}
#else
float uniform_number(uvec2 bits) { return unit(bits); }  // from 0 to 1
vec2 normal_pair(uvec4 bits) { return vec2(0); }
#endif

// Whether the 53 bits are a number below `first`.
NUMBER is_below(uvec2 bits) {
  const uvec2 whole = uvec2(bits.x << 21 | bits.y >> 11, bits.x >> 11);
  return NUMBER(whole.y < first.y || (whole.y == first.y && whole.x < first.x) ? 1 : 0);
}

void main() {
  const uvec2 from = kChanges == 0 ? start : Pairs(start).at[0];
  const uvec2 seed = kChanges == 0 ? key : Pairs(start).at[1];
  const uint pairs = count / 2 + count % 2;
  for (uint i = gl_GlobalInvocationID.x; i < pairs; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint carry;
    const uint low = uaddCarry(from.x, i, carry);
    const uvec4 bits = philox(uvec4(low, from.y + carry, 0, 0), seed);
    NUMBER one, two;
    if (kKind == 1) {
      one = normal_pair(bits).x;
      two = normal_pair(bits).y;
    } else if (kKind == 2) {
      one = is_below(bits.xy);
      two = is_below(bits.zw);
    } else {
      one = uniform_number(bits.xy);
      two = uniform_number(bits.zw);
    }
    store(target, int(2 * i), kDType, one);
    if (2 * i + 1 < count) store(target, int(2 * i + 1), kDType, two);
  }
}
