// out[m, n] = a[m, k] b[k, n] + beta out, for each matrix of a batch, as matmul_lanes.comp: a
// subgroup of 8 lanes makes 32 rows by 64 columns. It reads texels of four floats, which drivers
// that compute on the host load for all lanes in a few dozen instructions. The unrolled loop stays
// below the 32 KiB of code that a core caches.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "numbers.glsl"

layout(local_size_x = 8) in;

// 1: neighbours in a's memory are in one column, in b's in one row; the target is added.
// WINDOWS: b's columns are what windows of three by three see of images, one image's after the
// other's; a's rows have a texel for each row of such a window, whose last number is not read. k counts
// channels. Rows
// of places are those of the image, a multiple of four; one place of padding is at each side.
layout(constant_id = 0) const uint kRowsOfA = 0;
layout(constant_id = 1) const uint kColumnsOfB = 0;
layout(constant_id = 2) const uint kBeta = 0;  // of windows, 1: each row's number is added

#if WINDOWS
const uint kDown = 2, kDepth = 9;  // a channel's window
#else
const uint kDown = 4, kDepth = 4;
#endif
const uint kParts = 2, kAcross = 4 * kParts;  // of a lane

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Target { float at[]; };
layout(set = 0, binding = 0) uniform samplerBuffer a;
layout(set = 1, binding = 0) uniform samplerBuffer b;

layout(push_constant, std430) uniform Arguments {
  Target target;
  uint64_t first_a, first_b;  // texels, as all distances below
  uint m, n, k;
  uint a_row, a_column, b_row, b_column;  // of neighbours: 0
  uint a_batch, b_batch;
  uint images;
  int height, width;  // of windows, in elements
  Target bias;        // of windows: of each row
};

// The places of a lane's elements in the tile.
uint row_of(uint i, uint lane) { return kRowsOfA != 0 ? 4 * lane + i : 8 * i + lane; }
uint column_of(uint j, uint lane) { return 32 * (j >> 2) + 4 * lane + (j & 3); }

void main() {
  const uint lane = gl_LocalInvocationID.x, batch = gl_WorkGroupID.z;
  // Groups that follow each other have the same rows of a, so caches keep these.
  const uint column0 = gl_WorkGroupID.x * 8 * kAcross, row0 = gl_WorkGroupID.y * 8 * kDown;
  // In loops and branches lavapipe loads arguments lane by lane.
  Target to = target;
  const uint rows = m, columns = n, end = k, a_step = a_column, b_step = b_row;
  // Beyond the border the last row or column is computed again and not written.
  const uint a0 = uint(first_a) + batch * a_batch, b0 = uint(first_b) + batch * b_batch;
  uint at_a[kDown];
  [[unroll]] for (uint i = 0; i < kDown; ++i)
    at_a[i] = a0 + (kRowsOfA != 0 ? min(row0 + 4 * lane, rows - 4) >> 2
                                  : min(row0 + row_of(i, lane), rows - 1) * a_row);
#if WINDOWS
  const uint all_columns = columns * images;
  const int planes = height, image_row = width >> 2;
  uint image[kParts], place[kParts];
  int at_b[kParts], top[kParts];
  bool has_left[kParts], has_right[kParts];
  [[unroll]] for (uint p = 0; p < kParts; ++p) {
    const uint column = min(column0 + column_of(4 * p, lane), all_columns - 4);
    image[p] = column / columns;
    place[p] = column - image[p] * columns;
    const int y = int(place[p]) / width, x = int(place[p]) - y * width;
    at_b[p] = int(b0 + image[p] * b_batch) + (x >> 2);
    top[p] = y - 1;
    has_left[p] = x > 0;
    has_right[p] = x + 4 < width;
  }
  const int beyond = lane == 0 && has_left[0] ? -1 : lane == 7 && has_right[kParts - 1] ? 1 : 0;
  int from_b = 0;
#else
  const uint all_columns = columns;
  uint at_b[kAcross];
  [[unroll]] for (uint j = 0; j < kAcross; ++j)
    at_b[j] = b0 + (kColumnsOfB != 0 ? min(column0 + column_of(j & ~3, lane), columns - 4) >> 2
                                     : min(column0 + column_of(j, lane), columns - 1) * b_column);
#endif
  float sums[8 * kDown][kAcross];
  [[unroll]] for (uint i = 0; i < 8 * kDown; ++i)
    [[unroll]] for (uint j = 0; j < kAcross; ++j) sums[i][j] = 0.0;
#if WINDOWS
  for (uint depth = 0; depth < end; ++depth) {
    float left[kDown][kDepth], found[3][kParts][6];
    [[unroll]] for (uint tap = 0; tap < 3; ++tap) {
      [[unroll]] for (uint i = 0; i < kDown; ++i) {
        const vec4 four = texelFetch(a, int(at_a[i] + 3 * depth + tap));
        [[unroll]] for (uint q = 0; q < 3; ++q) left[i][3 * tap + q] = four[q];
      }
      bool inside[kParts];
      int at[kParts];
      [[unroll]] for (uint p = 0; p < kParts; ++p) {
        const int y = top[p] + int(tap);
        inside[p] = y >= 0 && y < planes;
        at[p] = at_b[p] + from_b + clamp(y, 0, planes - 1) * image_row;
        const vec4 four = texelFetch(b, at[p]);
        [[unroll]] for (uint q = 0; q < 4; ++q) found[tap][p][1 + q] = four[q];
      }
      // Before a lane's four are the last of the lane before, after them the first of the next one.
      const vec4 edge = texelFetch(b, (lane == 7 ? at[kParts - 1] : at[0]) + beyond);
      float before = edge.w, after = edge.x;
      [[unroll]] for (uint p = 0; p < kParts; ++p) {
        const float turned = subgroupShuffle(found[tap][p][4], (lane + 7) & 7);
        found[tap][p][0] = has_left[p] ? (lane == 0 ? before : turned) : 0.0;
        before = turned;
      }
      [[unroll]] for (uint p = kParts; p-- > 0;) {
        const float turned = subgroupShuffle(found[tap][p][1], (lane + 1) & 7);
        found[tap][p][5] = has_right[p] ? (lane == 7 ? after : turned) : 0.0;
        after = turned;
      }
      [[unroll]] for (uint p = 0; p < kParts; ++p)
        [[unroll]] for (uint q = 0; q < 6; ++q)
          found[tap][p][q] = inside[p] ? found[tap][p][q] : 0.0;
    }
    from_b += planes * image_row;
#else
  for (uint depth = 0; depth < end; depth += kDepth) {
    float left[kDown][4];
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const vec4 four = texelFetch(a, int(kRowsOfA != 0 ? at_a[0] + (depth + i) * a_step
                                                        : at_a[i] + (depth >> 2)));
      [[unroll]] for (uint q = 0; q < 4; ++q) {
        if (kRowsOfA != 0)
          left[q][i] = four[q];
        else
          left[i][q] = four[q];
      }
    }
#endif
    // Four columns at a time, since more of b would not stay in registers.
    [[unroll]] for (uint part = 0; part < kParts; ++part) {
      float right[4][kDepth];
#if WINDOWS
      [[unroll]] for (uint j = 0; j < 4; ++j)
        [[unroll]] for (uint q = 0; q < kDepth; ++q)
          right[j][q] = found[q / 3][part][j + q % 3];
#else
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        const vec4 four =
            texelFetch(b, int(kColumnsOfB != 0 ? at_b[4 * part] + (depth + j) * b_step
                                               : at_b[4 * part + j] + (depth >> 2)));
        [[unroll]] for (uint q = 0; q < 4; ++q) {
          if (kColumnsOfB != 0)
            right[q][j] = four[q];
          else
            right[j][q] = four[q];
        }
      }
#endif
      // Each lane takes its row of a from the lane `other` places across, so that every lane meets
      // every row: one instruction, where to send one lane's row to all would take two.
      [[unroll]] for (uint i = 0; i < kDown; ++i)
        [[unroll]] for (uint other = 0; other < 8; ++other) {
          float of_row[kDepth];
          [[unroll]] for (uint q = 0; q < kDepth; ++q)
            of_row[q] = subgroupShuffleXor(left[i][q], other);
          [[unroll]] for (uint j = 0; j < 4; ++j)
            [[unroll]] for (uint q = 0; q < kDepth; ++q)
              sums[8 * i + other][4 * part + j] += of_row[q] * right[j][q];
        }
    }
  }
#if WINDOWS
  float offset[kDown];
  [[unroll]] for (uint i = 0; i < kDown; ++i)
    offset[i] = kBeta == 0 ? 0.0 : bias.at[min(row0 + row_of(i, lane), rows - 1)];
#endif
  [[unroll]] for (uint i = 0; i < kDown; ++i)
    [[unroll]] for (uint other = 0; other < 8; ++other) {
#if WINDOWS
      const float of_row = subgroupShuffleXor(offset[i], other);
#endif
      [[unroll]] for (uint j = 0; j < kAcross; ++j) {
        const uint row = row0 + row_of(i, lane ^ other), column = column0 + column_of(j, lane);
        if (row < rows && column < all_columns) {
#if WINDOWS
          const uint at = (image[j >> 2] * rows + row) * columns + place[j >> 2] + (j & 3);
#else
          const uint at = (batch * rows + row) * columns + column;
#endif
          const float sum = sums[8 * i + other][j];
#if WINDOWS
          to.at[at] = kBeta != 0 ? sum + of_row : sum;
#else
          to.at[at] = kBeta != 0 ? sum + to.at[at] : sum;
#endif
        }
      }
    }
}
