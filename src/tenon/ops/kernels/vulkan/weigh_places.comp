// matmul_places.comp for groups of a few filters, whose tiles would be mostly empty. Without TAPS a
// lane makes four neighbouring places of one filter. With it, for the weight's gradient, a subgroup
// of 8 lanes makes nine taps of one filter: each lane adds up every eighth row of places, then they
// add what they have.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "numbers.glsl"

layout(local_size_x = 8) in;

layout(constant_id = 0) const uint kAdds = 0;  // 1: the target is added

const int kTaps = 9;  // of a subgroup

#include "places.glsl"

#if TAPS
void main() {
  const int lane = int(gl_LocalInvocationID.x), filter_row = int(gl_WorkGroupID.y);
  const int group = int(gl_WorkGroupID.z), tap0 = int(gl_WorkGroupID.x) * kTaps;
  Target to = target;
  const int across = row, high = quotient(fours, row), lines = images * high, all_taps = taps;
  const int a_step = a_image, image_step = b_image, y_step = b_y;
  const int a0 = first_a + group * a_group + filter_row * a_row;
  const int b0 = first_b + group * b_group;
  int at_b[kTaps];
  float sums[kTaps];
  [[unroll]] for (int t = 0; t < kTaps; ++t) {
    at_b[t] = b0 + tap_at(min(tap0 + t, all_taps - 1));
    sums[t] = 0.0;
  }
  for (int line = lane; line < lines; line += 8) {
    const int image = quotient(line, high), y = line - image * high;
    const int from_a = a0 + image * a_step + y * across, from_b = image * image_step + y * y_step;
    for (int x = 0; x < across; ++x) {
      const vec4 left = texelFetch(a, from_a + x);
      [[unroll]] for (int t = 0; t < kTaps; ++t) {
        const vec4 right = texelFetch(b, at_b[t] + from_b + x);
        [[unroll]] for (int q = 0; q < 4; ++q) sums[t] += left[q] * right[q];
      }
    }
  }
  [[unroll]] for (int t = 0; t < kTaps; ++t) {
    [[unroll]] for (uint other = 4; other > 0; other >>= 1)
      sums[t] += subgroupShuffleXor(sums[t], other);
    const int at = group * target_group + filter_row * target_row + tap0 + t;
    if (lane == 0 && tap0 + t < all_taps) to.at[at] = kAdds != 0 ? sums[t] + to.at[at] : sums[t];
  }
}
#else
void main() {
  const int filter_row = int(gl_WorkGroupID.y), group = int(gl_WorkGroupID.z);
  Target to = target;
  const int all_taps = taps, across = row, plane = fours, step = target_x, all = images * plane;
  const int high = kernel_height, wide = kernel_width, places = width;
  const int channel_step = b_channel, down_step = b_tap_y, across_step = b_tap_x;
  const int image_step = b_image, y_step = b_y, last_tap = b_last;
  const int to_image = target_image, to_y = target_y;
  const int at_a = first_a + group * a_group + filter_row * a_row, b0 = first_b + group * b_group;
  const int to0 = group * target_group + filter_row * target_row;
  const int end = (all_taps + 3) >> 2, stride = int(gl_NumWorkGroups.x) * 8;
  for (int four = int(gl_GlobalInvocationID.x); four < all; four += stride) {
    const int image = quotient(four, plane), rest = four - image * plane;
    const int y = quotient(rest, across), x = rest - y * across;
    const int at_b = b0 + image * image_step + y * y_step + x;
    int tap_x = 0, tap_y = 0, from_row = 0, from_channel = 0, from = 0;
    vec4 sums = vec4(0.0);
    for (int depth = 0; depth < end; ++depth) {
      const vec4 factors = texelFetch(a, at_a + depth);
      [[unroll]] for (int q = 0; q < 4; ++q) {
        const vec4 found = texelFetch(b, at_b + min(from, last_tap));
        sums += factors[q] * (4 * depth + q < all_taps ? found : vec4(0.0));
        from += across_step;
        if (++tap_x == wide) {
          tap_x = 0;
          from = from_row += down_step;
          if (++tap_y == high) {
            tap_y = 0;
            from = from_row = from_channel += channel_step;
          }
        }
      }
    }
    const int at = to0 + image * to_image + y * to_y + 4 * x * step;
    [[unroll]] for (int q = 0; q < 4; ++q)
      if (4 * x + q < places) to.at[at + q * step] = sums[q];
  }
}
#endif
