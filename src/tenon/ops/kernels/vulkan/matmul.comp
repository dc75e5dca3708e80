// out[m, n] = a[m, k] b[k, n] + beta out, for each matrix of a batch. An invocation makes 8 by 8
// elements in registers; columns of neighbours interleave, so their reads of b are one line.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "numbers.glsl"
#extension GL_EXT_control_flow_attributes : require

#if CLASS == 0
#define ITEM 4
#else
#define ITEM 8
#endif

layout(local_size_x = 8, local_size_y = 8) in;

const uint kEach = 8;

layout(buffer_reference, std430, buffer_reference_align = ITEM) readonly buffer Source {
  NUMBER at[];
};
layout(buffer_reference, std430, buffer_reference_align = ITEM) buffer Target { NUMBER at[]; };

layout(push_constant, std430) uniform Arguments {
  Target target;
  Source a;
  Source b;
  uint m, n, k;
  uint a_row, a_column, b_row, b_column;  // strides in elements
  uint a_batch, b_batch;
  uint beta;  // 0 or 1
};

void main() {
  const uint batch = gl_WorkGroupID.z;
  const uint row0 = gl_WorkGroupID.y * 64 + gl_LocalInvocationID.y * kEach;
  const uint column0 = gl_WorkGroupID.x * 64 + gl_LocalInvocationID.x;
  if (row0 >= m || column0 >= n) return;
  // Beyond the border the last row or column is computed again and not written.
  uint at_a[kEach], at_b[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    at_a[i] = batch * a_batch + min(row0 + i, m - 1) * a_row;
    at_b[i] = batch * b_batch + min(column0 + 8 * i, n - 1) * b_column;
  }
  NUMBER sums[kEach][kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i)
    [[unroll]] for (uint j = 0; j < kEach; ++j) sums[i][j] = NUMBER(0);
  for (uint depth = 0; depth < k; ++depth) {
    NUMBER left[kEach], right[kEach];
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      left[i] = a.at[at_a[i] + depth * a_column];
      right[i] = b.at[at_b[i] + depth * b_row];
    }
    [[unroll]] for (uint i = 0; i < kEach; ++i)
      [[unroll]] for (uint j = 0; j < kEach; ++j) sums[i][j] += left[i] * right[j];
  }
  [[unroll]] for (uint i = 0; i < kEach; ++i)
    [[unroll]] for (uint j = 0; j < kEach; ++j) {
      const uint row = row0 + i, column = column0 + 8 * j;
      if (row < m && column < n) {
        const uint at = (batch * m + row) * n + column;
        target.at[at] = sums[i][j] + (beta == 0 ? NUMBER(0) : target.at[at]);
      }
    }
}
