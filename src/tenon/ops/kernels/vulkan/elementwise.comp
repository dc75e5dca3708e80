// Element-wise functions of one or two f32 operands, of up to four dimensions with any strides.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 128) in;

layout(constant_id = 0) const uint kFunction = 0;  // ElementwiseFunction in device_kernels.h
layout(constant_id = 1) const uint kDims = 0;      // 0: all operands dense, of one shape
layout(constant_id = 2) const uint kNumber = 0;    // which operand is `first`: 1, 2; 0: none

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Source { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Target { float at[]; };

layout(push_constant, std430) uniform Arguments {
  Target target;
  Source a;
  Source b;
  uint count;
  float first;   // numbers of the function
  float second;
  uint sizes[4];  // innermost first, strides in elements
  int target_strides[4];
  int a_strides[4];
  int b_strides[4];
};

// Drivers may give numbers where these are due.
float infinity() { return uintBitsToFloat(0x7f800000u); }
float not_a_number() { return uintBitsToFloat(0x7fc00000u); }

// Abramowitz and Stegun's rational form is not exact enough; this is the Taylor series below 1 and
// the continued fraction above, to 1e-7.
float error_function(float x) {
  const float z = abs(x);
  if (z < 1.0) {
    const float s = x * x;
    float term = x, sum = x;
    for (int i = 1; i < 12; ++i) {
      term *= -s / float(i);
      sum += term / float(2 * i + 1);
    }
    return 1.1283791670955126 * sum;
  }
  if (z > 4.0) return sign(x);
  float fraction = 0.0;
  for (int i = 24; i > 0; --i) fraction = 0.5 * float(i) / (z + fraction);
  return sign(x) * (1.0 - exp(-z * z) / ((z + fraction) * 1.7724538509055159));
}

float sigmoid(float x) {
  const float e = exp(-abs(x));
  return x >= 0.0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
}

float hyperbolic_tangent(float x) {
  if (abs(x) < 0.04) return x - x * x * x / 3.0 + 2.0 * x * x * x * x * x / 15.0;
  const float e = exp(-2.0 * abs(x));
  return sign(x) * (1.0 - e) / (1.0 + e);
}

float value(float x, float y) {
  switch (kFunction) {
    case 0: return x + y;
    case 1: return x - y;
    case 2: return x * y;
    case 3: return x / y;
    case 4: return isnan(x) || x > y ? x : y;
    case 5: return isnan(x) || x < y ? x : y;
    case 10: return -x;
    case 11: return abs(x);
    case 12: return x * x;
    case 13: return x < 0.0 ? 0.0 : x;
    case 14: {
      const float raised = x < first ? first : x;
      return raised > second ? second : raised;
    }
    case 15: return isnan(x) ? x : x > 88.8 ? infinity() : exp(x);
    case 16:
      return isnan(x) || x < 0.0 ? not_a_number() : x == 0.0 ? -infinity() : isinf(x) ? x : log(x);
    case 17: return x < 0.0 ? not_a_number() : sqrt(x);
    case 18: return x < 0.0 ? not_a_number() : inversesqrt(x);
    case 19: return 1.0 / x;
    case 20: return isnan(x) ? x : hyperbolic_tangent(x);
    case 21: return isnan(x) ? x : sigmoid(x);
    case 22: return isnan(x) ? x : x * sigmoid(x);
    case 23: return isnan(x) ? x : 0.5 * x * (1.0 + error_function(x * 0.70710678118654752));
    case 24:
      return isnan(x) ? x
                      : 0.5 * x *
                            (1.0 + hyperbolic_tangent(0.79788456080286536 *
                                                      (x + 0.044715 * x * x * x)));
    case 25: return x > 0.0 ? x : x * first;
  }
  return 0.0;
}

// Of the operands at two places, one of which may be a number. From 10 on there is one operand.
float value_at(int from_a, int from_b) {
  if (kNumber == 1) return value(first, a.at[from_a]);
  if (kNumber == 2) return value(a.at[from_a], first);
  return value(a.at[from_a], kFunction < 10 ? b.at[from_b] : 0.0);
}

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    if (kDims == 0) {
      target.at[i] = value_at(int(i), int(i));
      continue;
    }
    uint rest = i;
    int to = 0, from_a = 0, from_b = 0;
    for (uint d = 0; d < kDims; ++d) {
      const int index = int(rest % sizes[d]);
      rest /= sizes[d];
      to += index * target_strides[d];
      from_a += index * a_strides[d];
      from_b += index * b_strides[d];
    }
    target.at[to] = value_at(from_a, from_b);
  }
}
