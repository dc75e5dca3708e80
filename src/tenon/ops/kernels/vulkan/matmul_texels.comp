// out[m, n] = a[m, k] b[k, n] + beta out, for each matrix of a batch, as matmul_lanes.comp: a
// subgroup of 8 lanes makes 32 rows by 8 * ACROSS columns. It reads texels of four floats, which
// drivers that compute on the host load for all lanes in a few dozen instructions.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "numbers.glsl"

layout(local_size_x = 8) in;

// 1: neighbours in a's memory are in one column, in b's in one row; the target is added; b's columns
// are what windows of images see [channels, kernel rows, three neighbours], and its batch the images.
// Rows of places are those of the image, a multiple of four; there is one place of padding at each
// side; k is one of twelve. n is even in any case.
layout(constant_id = 0) const uint kRowsOfA = 0;
layout(constant_id = 1) const uint kColumnsOfB = 0;
layout(constant_id = 2) const uint kBeta = 0;

const uint kDown = 4, kAcross = ACROSS;  // of a lane
#if WINDOWS
const uint kDepth = 12;
#else
const uint kDepth = 4;
#endif

layout(buffer_reference, std430, buffer_reference_align = 8) buffer Twos { uint64_t at[]; };
layout(set = 0, binding = 0) uniform samplerBuffer a;
layout(set = 1, binding = 0) uniform samplerBuffer b;

layout(push_constant, std430) uniform Arguments {
  Twos target;
  uint64_t first_a, first_b;  // texels, as all distances below
  uint m, n, k;
  uint a_row, a_column, b_row, b_column;  // of neighbours: 0
  uint a_batch, b_batch;
  uint unused;
  int height, width, out_width;  // of windows, in elements
  int kernel_height, kernel_width;
  int stride_height, stride_width;
  int padding_height, padding_width;
  int dilation_height, dilation_width;
};

#define UNPACK(texel, to, a, b, c, d) \
  {                                   \
    const vec4 four = texel;          \
    to[a] = four.x;                   \
    to[b] = four.y;                   \
    to[c] = four.z;                   \
    to[d] = four.w;                   \
  }

// The places of a lane's elements in the tile.
uint row_of(uint i, uint lane) { return kRowsOfA != 0 ? 4 * lane + i : 8 * i + lane; }
uint column_of(uint j, uint lane) { return 32 * (j >> 2) + 4 * lane + (j & 3); }

// The sums of two neighbouring columns.
void write(uint at, vec2 two) {
  if (kBeta != 0) two += uintBitsToFloat(unpackUint2x32(target.at[at >> 1]));
  target.at[at >> 1] = packUint2x32(floatBitsToUint(two));
}

void main() {
  const uint lane = gl_LocalInvocationID.x, batch = gl_WorkGroupID.z;
  // Groups that follow each other have the same rows of a, so caches keep these.
  const uint column0 = gl_WorkGroupID.x * 8 * kAcross, row0 = gl_WorkGroupID.y * 8 * kDown;
  // Beyond the border the last row or column is computed again and not written.
  const uint a0 = uint(first_a) + batch * a_batch, b0 = uint(first_b) + batch * b_batch;
  uint at_a[kDown], at_b[kAcross];
  [[unroll]] for (uint i = 0; i < kDown; ++i)
    at_a[i] = a0 + (kRowsOfA != 0 ? min(row0 + 4 * lane, m - 4) >> 2
                                  : min(row0 + row_of(i, lane), m - 1) * a_row);
#if WINDOWS
  const int place = int(min(column0 + 4 * lane, n - 4));
  const int y = place / out_width, x = place - y * out_width;
  const uint image = b0 + uint(x >> 2), image_row = uint(width >> 2);
  const bool has_left = x > 0, has_right = x + 4 < width;
  int tap = 0, channel = 0;  // the row of the kernel
#else
  [[unroll]] for (uint j = 0; j < kAcross; ++j)
    at_b[j] = b0 + (kColumnsOfB != 0 ? min(column0 + column_of(j & ~3, lane), n - 4) >> 2
                                     : min(column0 + column_of(j, lane), n - 1) * b_column);
#endif
  float sums[8 * kDown][kAcross];
  [[unroll]] for (uint i = 0; i < 8 * kDown; ++i)
    [[unroll]] for (uint j = 0; j < kAcross; ++j) sums[i][j] = 0.0;
  for (uint depth = 0; depth < k; depth += kDepth) {
    float left[kDown][kDepth];
    [[unroll]] for (uint q = 0; q < kDepth; q += 4) {
      if (kRowsOfA == 0) {
        [[unroll]] for (uint i = 0; i < kDown; ++i)
          UNPACK(texelFetch(a, int(at_a[i] + ((depth + q) >> 2))), left[i], q, q + 1, q + 2, q + 3)
      } else {
        [[unroll]] for (uint p = 0; p < 4; ++p) {
          const vec4 four = texelFetch(a, int(at_a[0] + (depth + q + p) * a_column));
          [[unroll]] for (uint i = 0; i < kDown; ++i) left[i][q + p] = four[i];
        }
      }
    }
    // Four columns at a time, since more of b would not stay in registers.
    [[unroll]] for (uint part = 0; part < kAcross / 4; ++part) {
      float right[4][kDepth];
#if WINDOWS
      [[unroll]] for (uint q = 0; q < kDepth; q += 3) {
        const int seen = y + tap - 1;
        const bool inside = seen >= 0 && seen < height;
        const uint row = image + uint(channel + clamp(seen, 0, height - 1)) * image_row;
        float found[6];
        const float before = texelFetch(b, int(row - (has_left ? 1 : 0))).w;
        const vec4 four = texelFetch(b, int(row));
        const float after = texelFetch(b, int(row + (has_right ? 1 : 0))).x;
        found[0] = inside && has_left ? before : 0.0;
        [[unroll]] for (uint i = 0; i < 4; ++i) found[1 + i] = inside ? four[i] : 0.0;
        found[5] = inside && has_right ? after : 0.0;
        [[unroll]] for (uint p = 0; p < 3; ++p)
          [[unroll]] for (uint j = 0; j < 4; ++j) right[j][q + p] = found[j + p];
        if (++tap == kernel_height) {
          tap = 0;
          channel += height;
        }
      }
#else
      if (kColumnsOfB == 0) {
        [[unroll]] for (uint j = 0; j < 4; ++j)
          UNPACK(texelFetch(b, int(at_b[4 * part + j] + (depth >> 2))), right[j], 0, 1, 2, 3)
      } else {
        [[unroll]] for (uint q = 0; q < kDepth; ++q) {
          const vec4 four = texelFetch(b, int(at_b[4 * part] + (depth + q) * b_row));
          [[unroll]] for (uint j = 0; j < 4; ++j) right[j][q] = four[j];
        }
      }
#endif
      [[unroll]] for (uint i = 0; i < kDown; ++i)
        [[unroll]] for (uint l = 0; l < 8; ++l) {
          float of_row[kDepth];
          [[unroll]] for (uint q = 0; q < kDepth; ++q) of_row[q] = subgroupShuffle(left[i][q], l);
          [[unroll]] for (uint j = 0; j < 4; ++j)
            [[unroll]] for (uint q = 0; q < kDepth; ++q)
              sums[8 * i + l][4 * part + j] += of_row[q] * right[j][q];
        }
    }
  }
  [[unroll]] for (uint i = 0; i < kDown; ++i)
    [[unroll]] for (uint l = 0; l < 8; ++l)
      [[unroll]] for (uint j = 0; j < kAcross; j += 2) {
        const uint row = row0 + row_of(i, l), column = column0 + column_of(j, lane);
        if (row < m && column < n)
          write((batch * m + row) * n + column, vec2(sums[8 * i + l][j], sums[8 * i + l][j + 1]));
      }
}
