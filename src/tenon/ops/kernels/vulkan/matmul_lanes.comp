// matmul.comp in f32 for subgroups of 8 lanes, where a load costs as much as dozens of sums: drivers
// that compute on the host load lane by lane. A subgroup makes 32 rows by 32 columns, by two of k at
// once. It loads two neighbours at once, and each lane gets the other lanes' rows of a from their
// registers: by a shuffle with a constant lane, since lavapipe searches for an active lane in each
// broadcast. For what matmul_texels.comp does not take.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "numbers.glsl"

layout(local_size_x = 8) in;

// 1: neighbours in a's memory are in one column, in b's in one row; the target is added.
layout(constant_id = 0) const uint kRowsOfA = 0;
layout(constant_id = 1) const uint kColumnsOfB = 0;
layout(constant_id = 2) const uint kBeta = 0;

const uint kDown = 4, kAcross = 4;  // of a lane
const uint kDepth = 2;

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Source {
  uint64_t at[];
};
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Target { float at[]; };

layout(push_constant, std430) uniform Arguments {
  Target target;
  Source a;
  Source b;
  uint m, n, k;  // even, as far as neighbours lie along them, and k is a multiple of the depth
  uint a_row, a_column, b_row, b_column;  // strides in elements, even but for the one that is 1
  uint a_batch, b_batch;
};

vec2 pair(Source source, uint i) { return uintBitsToFloat(unpackUint2x32(source.at[i >> 1])); }

// The places of a lane's elements in the tile.
uint row_of(uint i, uint lane) {
  return kRowsOfA != 0 ? 16 * (i >> 1) + 2 * lane + (i & 1) : 8 * i + lane;
}
uint column_of(uint j, uint lane) {
  return kColumnsOfB != 0 ? 16 * (j >> 1) + 2 * lane + (j & 1) : 8 * j + lane;
}

void main() {
  const uint lane = gl_LocalInvocationID.x, batch = gl_WorkGroupID.z;
  // Groups that follow each other have the same columns of b, so caches keep these.
  const uint row0 = gl_WorkGroupID.x * 8 * kDown, column0 = gl_WorkGroupID.y * 8 * kAcross;
  // Beyond the border the last row or column is computed again and not written.
  uint at_a[kDown], at_b[kAcross];
  [[unroll]] for (uint i = 0; i < kDown; ++i) {
    const uint row = row0 + row_of(i, lane), first = 1 - (i & 1);  // of a pair
    at_a[i] = batch * a_batch + min(row, m - 1 - kRowsOfA * first) * a_row;
  }
  [[unroll]] for (uint j = 0; j < kAcross; ++j) {
    const uint column = column0 + column_of(j, lane), first = 1 - (j & 1);
    at_b[j] = batch * b_batch + min(column, n - 1 - kColumnsOfB * first) * b_column;
  }
  float sums[8 * kDown][kAcross];
  [[unroll]] for (uint i = 0; i < 8 * kDown; ++i)
    [[unroll]] for (uint j = 0; j < kAcross; ++j) sums[i][j] = 0.0;
  for (uint depth = 0; depth < k; depth += kDepth) {
    float left[kDepth][kDown], right[kDepth][kAcross];
    [[unroll]] for (uint i = 0; i < kDown; ++i)
      [[unroll]] for (uint q = 0; q < kDepth; q += 2) {
        const uint p = i & 1;
        if (kRowsOfA == 0) {
          const vec2 two = pair(a, at_a[i] + depth + q);
          left[q][i] = two.x;
          left[q + 1][i] = two.y;
        } else {
          const vec2 two = pair(a, at_a[i - p] + (depth + q + p) * a_column);
          left[q + p][i - p] = two.x;
          left[q + p][i - p + 1] = two.y;
        }
      }
    [[unroll]] for (uint j = 0; j < kAcross; ++j)
      [[unroll]] for (uint q = 0; q < kDepth; q += 2) {
        const uint p = j & 1;
        if (kColumnsOfB == 0) {
          const vec2 two = pair(b, at_b[j] + depth + q);
          right[q][j] = two.x;
          right[q + 1][j] = two.y;
        } else {
          const vec2 two = pair(b, at_b[j - p] + (depth + q + p) * b_row);
          right[q + p][j - p] = two.x;
          right[q + p][j - p + 1] = two.y;
        }
      }
    [[unroll]] for (uint i = 0; i < kDown; ++i)
      [[unroll]] for (uint l = 0; l < 8; ++l) {
        float of_row[kDepth];
        [[unroll]] for (uint q = 0; q < kDepth; ++q) of_row[q] = subgroupShuffle(left[q][i], l);
        [[unroll]] for (uint j = 0; j < kAcross; ++j)
          [[unroll]] for (uint q = 0; q < kDepth; ++q)
            sums[8 * i + l][j] += of_row[q] * right[q][j];
      }
  }
  [[unroll]] for (uint i = 0; i < kDown; ++i)
    [[unroll]] for (uint l = 0; l < 8; ++l)
      [[unroll]] for (uint j = 0; j < kAcross; ++j) {
        const uint row = row0 + row_of(i, l), column = column0 + column_of(j, lane);
        if (row < m && column < n) {
          const uint at = (batch * m + row) * n + column;
          if (kBeta != 0) sums[8 * i + l][j] += target.at[at];
          target.at[at] = sums[8 * i + l][j];
        }
      }
}
