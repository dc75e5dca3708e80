// Lines of dense tensors [outer, length, inner], an invocation for each line.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "numbers.glsl"

layout(local_size_x = 64) in;

// 0 softmax, 1 log_softmax; 2, 3 their derivatives from the gradient (b) and the result (a);
// 4 layer_norm, 5 rms_norm, with weight (b) and bias (c); 6 cumsum, 7 cumprod; 8, 9 the derivatives
// of 4, 5 from the input (a), the gradient (b) and the weight (c). So are 10 of group_norm and 11
// of batch_norm, with a work group for each line, since such lines are long and may be few: `inner`
// is the elements of a channel of an image, `channels` those of an image.
layout(constant_id = 0) const uint kKind = 0;
layout(constant_id = 1) const uint kGiven = 0;  // 1: there is b; 2: c; 4: the moments of 11

layout(push_constant, std430) uniform Arguments {
  uvec2 target, a, b, c;
  uvec2 eps;  // f64, of which an f32 is the first word
  uvec2 products;  // of 8, 9, 10: of gradient and normalised input, where there is a weight
  uvec2 of_weight, of_bias;  // targets of 11
  uvec2 mean, variance;      // given for 11
  uint lines;
  uint length;
  uint inner;
  uint channels;
};

NUMBER at(uvec2 base, uint i) {
#if CLASS == 0
  return uintBitsToFloat(Words(base).at[i]);
#elif CLASS == 1
  return packDouble2x32(Pairs(base).at[i]);
#else
  return int64_t(packUint2x32(Pairs(base).at[i]));
#endif
}
void put(uvec2 base, uint i, NUMBER x) {
#if CLASS == 0
  Words(base).at[i] = floatBitsToUint(x);
#elif CLASS == 1
  Pairs(base).at[i] = unpackDouble2x32(x);
#else
  Pairs(base).at[i] = unpackUint2x32(uint64_t(x));
#endif
}
void put(uint i, NUMBER x) { put(target, i, x); }

// A sum; in f32 with what rounding loses (Kahan).
struct Sum {
  NUMBER held, lost;
};
void add(inout Sum sum, NUMBER x) {
#if CLASS == 0
  precise const float mended = x - sum.lost, grown = sum.held + mended;
  precise const float rest = (grown - sum.held) - mended;
  sum.lost = isnan(rest) || isinf(rest) ? 0.0 : rest;
  sum.held = grown;
#else
  sum.held += x;
#endif
}

#if CLASS < 2
NUMBER exp_of(NUMBER x) { return isnan(x) ? x : exponential(x); }

void softmax(uint first) {
  NUMBER largest = -infinity();
  for (uint i = 0; i < length; ++i) {
    const NUMBER x = at(a, first + i * inner);
    if (isnan(x) || x > largest) largest = x;
    if (isnan(x)) break;
  }
  Sum sum = Sum(L(0.0lf), L(0.0lf));
  for (uint i = 0; i < length; ++i) add(sum, exp_of(at(a, first + i * inner) - largest));
  NUMBER shift = largest;
  if (kKind == 1) shift += isnan(sum.held) ? sum.held : logarithm(sum.held);
  for (uint i = 0; i < length; ++i) {
    const NUMBER x = at(a, first + i * inner) - shift;
    put(first + i * inner, kKind == 1 ? x : exp_of(x) / sum.held);
  }
}

void softmax_backward(uint first) {
  Sum sum = Sum(L(0.0lf), L(0.0lf));
  for (uint i = first; i < first + length * inner; i += inner)
    add(sum, kKind == 2 ? at(a, i) * at(b, i) : at(b, i));
  for (uint i = first; i < first + length * inner; i += inner) {
    const NUMBER y = at(a, i), g = at(b, i);
    put(i, kKind == 2 ? y * (g - sum.held) : g - exp_of(y) * sum.held);
  }
}

struct Moments {
  NUMBER mean, scale;
};
NUMBER scale_of(NUMBER variance) {
#if CLASS == 0
  return 1.0 / sqrt(variance + uintBitsToFloat(eps.x));
#else
  return L(1.0lf) / sqrt(variance + packDouble2x32(eps));
#endif
}
Moments moments_of(uint first, bool centred) {
  NUMBER mean = L(0.0lf);
  Sum sum = Sum(L(0.0lf), L(0.0lf));
  if (centred) {
    for (uint i = 0; i < length; ++i) add(sum, at(a, first + i));
    mean = sum.held / NUMBER(length);
  }
  sum = Sum(L(0.0lf), L(0.0lf));
  for (uint i = 0; i < length; ++i) {
    const NUMBER x = at(a, first + i) - mean;
    add(sum, x * x);
  }
  return Moments(mean, scale_of(sum.held / NUMBER(length)));
}

void normalize(uint first) {
  const Moments row = moments_of(first, kKind == 4);
  for (uint i = 0; i < length; ++i) {
    NUMBER x = (at(a, first + i) - row.mean) * row.scale;
    if ((kGiven & 1) != 0) x *= at(b, i);
    if ((kGiven & 2) != 0) x += at(c, i);
    put(first + i, x);
  }
}

void normalize_backward(uint first) {
  const bool weighted = (kGiven & 2) != 0;
  const Moments row = moments_of(first, kKind == 8);
  Sum sum = Sum(L(0.0lf), L(0.0lf)), along = sum;
  for (uint i = 0; i < length; ++i) {
    const NUMBER x = (at(a, first + i) - row.mean) * row.scale;
    NUMBER g = at(b, first + i);
    if (weighted) {
      put(products, first + i, g * x);
      g *= at(c, i);
    }
    add(sum, g);
    add(along, g * x);
  }
  const NUMBER shift = kKind == 8 ? sum.held / NUMBER(length) : L(0.0lf);
  const NUMBER slope = along.held / NUMBER(length);
  for (uint i = 0; i < length; ++i) {
    const NUMBER x = (at(a, first + i) - row.mean) * row.scale;
    const NUMBER g = weighted ? at(b, first + i) * at(c, i) : at(b, first + i);
    put(first + i, row.scale * (g - shift - x * slope));
  }
}

shared NUMBER parts[2][gl_WorkGroupSize.x];
// The work group's sums.
void add_up(inout Sum x, inout Sum y) {
  const uint lane = gl_LocalInvocationID.x;
  parts[0][lane] = x.held;
  parts[1][lane] = y.held;
  for (uint half_of = gl_WorkGroupSize.x / 2; half_of > 0; half_of /= 2) {
    barrier();
    if (lane < half_of) {
      parts[0][lane] += parts[0][lane + half_of];
      parts[1][lane] += parts[1][lane + half_of];
    }
  }
  barrier();
  x.held = parts[0][0];
  y.held = parts[1][0];
  barrier();
}

// Where a line's elements lie, and which weight each has.
uint place_in(uint line, uint i) {
  return kKind == 10 ? line * length + i
                     : i / inner * (channels * inner) + line * inner + i % inner;
}
NUMBER weight_at(uint line, uint i) {
  if ((kGiven & 2) == 0) return L(1.0lf);
  const uint each = length / inner;  // of 10: channels
  return at(c, kKind == 10 ? line % (channels / each) * each + i / inner : line);
}

Moments moments_of_line(uint line) {
  if ((kGiven & 4) != 0) return Moments(at(mean, line), scale_of(at(variance, line)));
  const uint lane = gl_LocalInvocationID.x;
  Sum sum = Sum(L(0.0lf), L(0.0lf)), none = sum;
  for (uint i = lane; i < length; i += gl_WorkGroupSize.x) add(sum, at(a, place_in(line, i)));
  add_up(sum, none);
  const NUMBER mean = sum.held / NUMBER(length);
  sum = Sum(L(0.0lf), L(0.0lf));
  for (uint i = lane; i < length; i += gl_WorkGroupSize.x) {
    const NUMBER x = at(a, place_in(line, i)) - mean;
    add(sum, x * x);
  }
  add_up(sum, none);
  return Moments(mean, scale_of(sum.held / NUMBER(length)));
}

void channels_backward(uint line) {
  const uint lane = gl_LocalInvocationID.x;
  const Moments row = moments_of_line(line);
  Sum sum = Sum(L(0.0lf), L(0.0lf)), along = sum;
  for (uint i = lane; i < length; i += gl_WorkGroupSize.x) {
    const uint there = place_in(line, i);
    const NUMBER x = (at(a, there) - row.mean) * row.scale;
    NUMBER g = at(b, there);
    if (kKind == 10 && (kGiven & 2) != 0) put(products, there, g * x);
    if (kKind == 10) g *= weight_at(line, i);
    add(sum, g);
    add(along, g * x);
  }
  add_up(sum, along);
  if (kKind == 11 && lane == 0) {
    put(of_bias, line, sum.held);
    put(of_weight, line, along.held);
  }
  const bool own = (kGiven & 4) == 0;
  const NUMBER shift = own ? sum.held / NUMBER(length) : L(0.0lf);
  const NUMBER slope = own ? along.held / NUMBER(length) : L(0.0lf);
  for (uint i = lane; i < length; i += gl_WorkGroupSize.x) {
    const uint there = place_in(line, i);
    const NUMBER x = (at(a, there) - row.mean) * row.scale, weight = weight_at(line, i);
    const NUMBER g = at(b, there);
    put(there, kKind == 10 ? row.scale * (g * weight - shift - x * slope)
                           : weight * row.scale * (g - shift - x * slope));
  }
}
#endif

void scan(uint first) {
  Sum sum = Sum(NUMBER(kKind == 7 ? 1 : 0), NUMBER(0));
  for (uint i = first; i < first + length * inner; i += inner) {
    if (kKind == 7)
      sum.held *= at(a, i);
    else
      add(sum, at(a, i));
    put(i, sum.held);
  }
}

void main() {
#if CLASS < 2
  if (kKind >= 10) {
    for (uint line = gl_WorkGroupID.x; line < lines; line += gl_NumWorkGroups.x)
      channels_backward(line);
    return;
  }
#endif
  for (uint i = gl_GlobalInvocationID.x; i < lines; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    const uint first = i / inner * (length * inner) + i % inner;
    switch (kKind) {
#if CLASS < 2
      case 0:
      case 1: softmax(first); break;
      case 2:
      case 3: softmax_backward(first); break;
      case 4:
      case 5: normalize(first); break;
      case 8:
      case 9: normalize_backward(first); break;
#endif
      default: scan(first);
    }
  }
}
