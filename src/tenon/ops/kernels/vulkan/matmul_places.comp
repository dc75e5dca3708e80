// A convolution by shifted planes (shifts.comp), as matmul_texels.comp: a subgroup of 8 lanes makes
// 32 rows by 64 columns, four of the inner dimension at once. Rows are a group's filters. Without
// TAPS a column of the product is a place, and the inner dimension are the taps; with it, for the
// weight's gradient, a column is a tap, and the inner dimension are the places.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "numbers.glsl"

layout(local_size_x = 8) in;

layout(constant_id = 0) const uint kAdds = 0;   // 1: the target is added
layout(constant_id = 1) const uint kRest = 0;   // 1: the taps are no multiple of four
layout(constant_id = 2) const uint kBias = 0;  // 1: each filter's number is added

const uint kDown = 4, kParts = 2, kAcross = 4 * kParts;  // of a lane
const uint kDepth = 4;

#include "places.glsl"

void main() {
  const int lane = int(gl_LocalInvocationID.x), group = int(gl_WorkGroupID.z);
  const int part0 = int(gl_WorkGroupID.x * kParts * 8), row0 = int(gl_WorkGroupID.y * 8 * kDown);
  // In loops and branches lavapipe loads arguments lane by lane.
  Target to = target;
  const int last_row = rows - 1, all_taps = taps, across = row, plane = fours, all = images;
  const int high = kernel_height, wide = kernel_width, row_step = target_row, step = target_x;
  const int channel_step = b_channel, down_step = b_tap_y, across_step = b_tap_x;
  const int image_step = b_image, y_step = b_y, gradient_step = a_image;
  // Beyond the border the last row or column is computed again and not written.
  int at_a[kDown];
  [[unroll]] for (int i = 0; i < kDown; ++i)
    at_a[i] = first_a + group * a_group + min(row0 + 8 * i + lane, last_row) * a_row;
  int at_to[kParts], room[kParts];  // of four neighbours in the target
  const int b0 = first_b + group * b_group;
#if TAPS
  int at_b[kAcross];
  [[unroll]] for (int p = 0; p < kParts; ++p) {
    const int tap = 4 * (part0 + 8 * p + lane);
    at_to[p] = tap;
    room[p] = all_taps - tap;
    [[unroll]] for (int q = 0; q < 4; ++q)
      at_b[4 * p + q] = b0 + tap_at(min(tap + q, all_taps - 1));
  }
  const int end = all * plane;
  int x = 0, place = 0, from_a = 0, from_b = 0, from_row = 0, image_a = 0, image_b = 0;
#else
  int at_b[kParts];
  [[unroll]] for (int p = 0; p < kParts; ++p) {
    const int four = part0 + 8 * p + lane, known = min(four, all * plane - 1);
    const int image = quotient(known, plane), rest = known - image * plane;
    const int y = quotient(rest, across), x = rest - y * across;
    at_b[p] = b0 + image * image_step + y * y_step + x;
    at_to[p] = image * target_image + y * target_y + 4 * x * step;
    room[p] = four == known ? width - 4 * x : 0;
  }
  const int end = (all_taps + 3) >> 2, last_tap = b_last;
  int tap_x = 0, tap_y = 0, from_row = 0, from_channel = 0, from_b = 0;
#endif
  float sums[8 * kDown][kAcross];
  [[unroll]] for (uint i = 0; i < 8 * kDown; ++i)
    [[unroll]] for (uint j = 0; j < kAcross; ++j) sums[i][j] = 0.0;
  for (int depth = 0; depth < end; ++depth) {
    float left[kDown][4];
    [[unroll]] for (uint i = 0; i < kDown; ++i) {
#if TAPS
      const vec4 four = texelFetch(a, at_a[i] + from_a);
#else
      const vec4 four = texelFetch(a, at_a[i] + depth);
#endif
      [[unroll]] for (uint q = 0; q < 4; ++q) left[i][q] = four[q];
    }
#if !TAPS
    int from[kDepth];
    [[unroll]] for (int q = 0; q < kDepth; ++q) {
      from[q] = kRest != 0 ? min(from_b, last_tap) : from_b;
      from_b += across_step;
      if (++tap_x == wide) {
        tap_x = 0;
        from_b = from_row += down_step;
        if (++tap_y == high) {
          tap_y = 0;
          from_b = from_row = from_channel += channel_step;
        }
      }
    }
#endif
    // Four columns at a time, since more of b would not stay in registers.
    [[unroll]] for (uint part = 0; part < kParts; ++part) {
      float right[4][kDepth];
      [[unroll]] for (uint j = 0; j < 4; ++j) {
#if TAPS
        const vec4 four = texelFetch(b, at_b[4 * part + j] + from_b);
        [[unroll]] for (uint q = 0; q < 4; ++q) right[j][q] = four[q];
#else
        const vec4 four = texelFetch(b, at_b[part] + from[j]);
        const bool has = kRest == 0 || 4 * depth + int(j) < all_taps;
        [[unroll]] for (uint q = 0; q < 4; ++q) right[q][j] = has ? four[q] : 0.0;
#endif
      }
      // Each lane takes its row of a from the lane `other` places across.
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
#if TAPS
    ++from_a;
    ++from_b;
    ++place;
    if (++x == across) {
      x = 0;
      from_b = from_row += y_step;
    }
    if (place == plane) {
      place = 0;
      from_a = image_a += gradient_step;
      from_b = from_row = image_b += image_step;
    }
#endif
  }
  float offset[kDown];
  [[unroll]] for (int i = 0; i < kDown; ++i)
    offset[i] = kBias == 0 ? 0.0
                           : bias.at[group * rows + min(row0 + 8 * i + lane, last_row)];
  [[unroll]] for (uint i = 0; i < kDown; ++i)
    [[unroll]] for (uint other = 0; other < 8; ++other) {
      const int row = row0 + int(8 * i) + (lane ^ int(other));
      const float of_row = subgroupShuffleXor(offset[i], other);
      [[unroll]] for (uint j = 0; j < kAcross; ++j) {
        const int at = at_to[j >> 2] + group * target_group + row * row_step + int(j & 3) * step;
        float sum = sums[8 * i + other][j];
        if (kBias != 0) sum += of_row;
        if (row <= last_row && int(j & 3) < room[j >> 2])
          to.at[at] = kAdds != 0 ? sum + to.at[at] : sum;
      }
    }
}
