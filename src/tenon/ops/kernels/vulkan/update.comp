// One step of an optimiser, in one pass over a parameter, its gradient and its state. Products and
// sums round by themselves, as on the host.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "numbers.glsl"

layout(local_size_x = 64) in;

layout(constant_id = 0) const uint kKind = 0;  // UpdateKind in device_kernels.h
layout(constant_id = 1) const uint kChanges = 0;  // whether numbers[0] is their address

layout(push_constant, std430) uniform Arguments {
  uvec2 parameter, gradient, first_state, second_state;
  uvec2 numbers[9];  // f64, of which an f32 is the first word; in the order of the kind
  uvec2 factor;      // of an f32 that multiplies the scale; or 0
  uint count;
};

NUMBER n(int i) {
  const uvec2 bits = kChanges == 0 ? numbers[i] : Pairs(numbers[0]).at[i];
#if CLASS == 0
  return uintBitsToFloat(bits.x);
#else
  return packDouble2x32(bits);
#endif
}
NUMBER at(uvec2 base, uint i) {
#if CLASS == 0
  return uintBitsToFloat(Words(base).at[i]);
#else
  return packDouble2x32(Pairs(base).at[i]);
#endif
}
void put(uvec2 base, uint i, NUMBER x) {
#if CLASS == 0
  Words(base).at[i] = floatBitsToUint(x);
#else
  Pairs(base).at[i] = unpackDouble2x32(x);
#endif
}

NUMBER scale() {
  return factor == uvec2(0) ? n(0) : n(0) * NUMBER(uintBitsToFloat(Words(factor).at[0]));
}

// Numbers: scale, weight decay, rate, what is kept of the velocity, what is taken, momentum.
void sgd(uint i) {
  const NUMBER p = at(parameter, i);
  precise const NUMBER g = scale() * at(gradient, i) + n(1) * p;
  if (kKind == 0) {
    precise const NUMBER moved = p - n(2) * g;
    put(parameter, i, moved);
    return;
  }
  precise const NUMBER velocity = n(3) * at(first_state, i) + n(4) * g;
  put(first_state, i, velocity);
  precise const NUMBER along = kKind == 2 ? g + n(5) * velocity : velocity;
  precise const NUMBER moved = p - n(2) * along;
  put(parameter, i, moved);
}

// Numbers: scale, the gradient's decay, the parameter's factor, beta1, 1 - beta1, beta2, 1 - beta2,
// eps times the root's correction, the step times it.
void adam(uint i) {
  precise const NUMBER p = at(parameter, i) * n(2);
  precise const NUMBER g = scale() * at(gradient, i) + n(1) * p;
  precise const NUMBER mean = n(3) * at(first_state, i) + n(4) * g;
  precise const NUMBER squared = n(5) * at(second_state, i) + n(6) * g * g;
  put(first_state, i, mean);
  put(second_state, i, squared);
  precise const NUMBER moved = p - n(8) * mean / (sqrt(squared) + n(7));
  put(parameter, i, moved);
}

void main() {
  if (factor != uvec2(0) && !(scale() > NUMBER(0))) return;
  for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x)
    if (kKind == 3)
      adam(i);
    else
      sgd(i);
}
