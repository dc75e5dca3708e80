// Products and sums in registers, without a load: a bound of what a device computes.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(local_size_x = 8) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Target { float at[]; };
layout(push_constant, std430) uniform Arguments {
  Target target;
  uint rounds;
};

const uint kSums = 28, kTimes = 8;

void main() {
  float sums[kSums];
  const float factor = float(gl_LocalInvocationID.x);
  [[unroll]] for (uint i = 0; i < kSums; ++i) sums[i] = factor + float(i);
  for (uint round = 0; round < rounds; ++round)
    [[unroll]] for (uint time = 0; time < kTimes; ++time)
      [[unroll]] for (uint i = 0; i < kSums; ++i) sums[i] += sums[(i + 1) % kSums] * factor;
  float all = 0.0;
  [[unroll]] for (uint i = 0; i < kSums; ++i) all += sums[i];
  target.at[gl_GlobalInvocationID.x] = all;
}
