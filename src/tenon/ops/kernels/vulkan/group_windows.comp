// Convolutions in groups of a few filters, whose tiles of a product would be mostly empty, straight
// from the images. A lane walks down eight neighbouring places of a plane, four rows at a time, and
// reads each row of the image once for them. With SUMS, for the weight's gradient, a subgroup of 8
// lanes has one channel's taps of one filter: each lane adds up every eighth line of places, then
// they add what they have.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "numbers.glsl"

layout(local_size_x = 8) in;

// A byte each: taps down and across, the steps of places down and across.
layout(constant_id = 0) const uint kTaps = 0;
// A byte each: how far taps are apart, down and across; where in a texel the lines of the images
// begin, 4 where lines differ; the same for lines of places.
layout(constant_id = 1) const uint kApart = 0;
layout(constant_id = 2) const uint kChannels = 1;  // of a group
layout(constant_id = 3) const uint kAdds = 0;  // 1: with SUMS the target is added, else the bias

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Target { float at[]; };
layout(set = 0, binding = 0) uniform samplerBuffer a;  // the weight, or the gradient of the places
layout(set = 1, binding = 0) uniform samplerBuffer b;  // the images

layout(push_constant, std430) uniform Arguments {
  Target target;
  int first_a, last_a, first_b, last_b;  // texels
  int images, first_image;               // of this launch, and those before
  int filters, of_group;                 // all, and a group's
  int height, width;                     // of the images
  int places_down, places_across;
  int top, left;   // what the first place sees by the first tap
  int weight_row;  // texels of a channel's taps
  int target_image, target_filter, target_y, target_x;  // in elements
  Target bias;  // of each filter
};

const int kHigh = int(kTaps & 255), kWide = int(kTaps >> 8 & 255);
const int kStepDown = int(kTaps >> 16 & 255), kStepAcross = int(kTaps >> 24);
const int kApartDown = int(kApart & 255), kApartAcross = int(kApart >> 8 & 255);
const int kBegin = int(kApart >> 16 & 255), kPlacesBegin = int(kApart >> 24);
const int kTall = 4, kPlaces = 8;
const int kRows = (kTall - 1) * kStepDown + (kHigh - 1) * kApartDown + 1;
const int kSpan = (kPlaces - 1) * kStepAcross + (kWide - 1) * kApartAcross + 1;
const int kMostSpan = 32, kMostTaps = 64;  // as C++ has them

uint ones_if(bool yes) { return yes ? ~0u : 0u; }

// `count` elements from i on where mask has ones, else 0. They begin in a texel at i & 3, which is
// `begin` unless that is 4.
void read(samplerBuffer from, int first, int last, int i, int begin, int count, uint row,
          uint mask[kMostSpan], out float to[kMostSpan]) {
  uint found[kMostSpan + 8];
  [[unroll]] for (int f = 0; f < (count + min(begin, 3) + 3) / 4; ++f) {
    const vec4 four = texelFetch(from, clamp(first + (i >> 2) + f, first, last));
    [[unroll]] for (int q = 0; q < 4; ++q) found[4 * f + q] = floatBitsToUint(four[q]);
  }
  if (begin == 4) {
    const uint two = ones_if((i & 2) != 0), one = ones_if((i & 1) != 0);
    [[unroll]] for (int e = 0; e <= count; ++e)
      found[e] = (found[e] & ~two) | (found[e + 2] & two);
    [[unroll]] for (int e = 0; e < count; ++e)
      found[e] = (found[e] & ~one) | (found[e + 1] & one);
  }
  [[unroll]] for (int e = 0; e < count; ++e)
    to[e] = uintBitsToFloat(found[e + (begin & 3)] & mask[e] & row);
}

// Ones for those of `count` elements from x on that a row of `size` has.
void find_inside(int x, int size, int count, out uint mask[kMostSpan]) {
  [[unroll]] for (int e = 0; e < count; ++e) mask[e] = ones_if(x + e >= 0 && x + e < size);
}

#if SUMS
void main() {
  const int lane = int(gl_LocalInvocationID.x), filter_row = int(gl_WorkGroupID.y);
  const int channel = int(gl_WorkGroupID.x);
  // In loops lavapipe loads arguments lane by lane.
  Target to = target;
  const int from_a = first_a, to_a = last_a, from_b = first_b, to_b = last_b, rows = filters;
  const int wide = places_across, high = places_down, across = width, down = height;
  const int lines = (wide + kPlaces - 1) / kPlaces, all = images * lines, y0 = top, x0 = left;
  const int all_channels = rows / of_group * int(kChannels), image0 = first_image;
  const int of_image = filter_row / of_group * int(kChannels) + channel;
  float sums[kMostTaps];
  [[unroll]] for (int t = 0; t < kHigh * kWide; ++t) sums[t] = 0.0;
  for (int number = lane; number < all; number += 8) {
    const int of_launch = number / lines, image = image0 + of_launch;
    const int x = (number - of_launch * lines) * kPlaces;
    const int from_x = x0 + x * kStepAcross;
    const int gradient = (image * rows + filter_row) * high * wide + x;
    const int plane = (image * all_channels + of_image) * down * across + from_x;
    uint has[kMostSpan], inside[kMostSpan];
    find_inside(x, wide, kPlaces, has);
    find_inside(from_x, across, kSpan, inside);
    for (int y = 0; y < high; y += kTall) {
      float factors[kTall * kPlaces];
      [[unroll]] for (int t = 0; t < kTall; ++t) {
        float found[kMostSpan];
        read(a, from_a, to_a, gradient + (y + t) * wide, kPlacesBegin, kPlaces,
             ones_if(y + t < high), has, found);
        [[unroll]] for (int q = 0; q < kPlaces; ++q) factors[kPlaces * t + q] = found[q];
      }
      [[unroll]] for (int r = 0; r < kRows; ++r) {
        const int from_y = y0 + y * kStepDown + r;
        float found[kMostSpan];
        read(b, from_b, to_b, plane + from_y * across, kBegin, kSpan,
             ones_if(from_y >= 0 && from_y < down), inside, found);
        [[unroll]] for (int t = 0; t < kTall; ++t)
          [[unroll]] for (int ky = 0; ky < kHigh; ++ky)
            if (t * kStepDown + ky * kApartDown == r)
              [[unroll]] for (int kx = 0; kx < kWide; ++kx)
                [[unroll]] for (int q = 0; q < kPlaces; ++q)
                  sums[ky * kWide + kx] +=
                      factors[kPlaces * t + q] * found[q * kStepAcross + kx * kApartAcross];
      }
    }
  }
  const int first = (filter_row * int(kChannels) + channel) * kHigh * kWide;
  [[unroll]] for (int t = 0; t < kHigh * kWide; ++t) {
    float sum = sums[t];
    sum += subgroupShuffleXor(sum, 4);
    sum += subgroupShuffleXor(sum, 2);
    sum += subgroupShuffleXor(sum, 1);
    if (lane == 0) to.at[first + t] = kAdds != 0 ? sum + to.at[first + t] : sum;
  }
}
#else
void main() {
  Target to = target;
  const int from_a = first_a, to_a = last_a, from_b = first_b, to_b = last_b;
  const int wide = places_across, high = places_down, across = width, down = height, y0 = top;
  const int lines = (wide + kPlaces - 1) / kPlaces, all = images * filters * lines;
  const int number = min(int(gl_GlobalInvocationID.x), all - 1);
  const int plane = number / lines, x = (number - plane * lines) * kPlaces;
  const int of_launch = plane / filters, filter_row = plane - of_launch * filters;
  const int image = first_image + of_launch;
  const int channel = filter_row / of_group * int(kChannels);
  const int all_channels = filters / of_group * int(kChannels);
  const int from_x = left + x * kStepAcross, weight = filter_row * int(kChannels) * weight_row;
  const int weight_step = weight_row, y_step = target_y, x_step = target_x;
  const int room = int(gl_GlobalInvocationID.x) < all ? wide - x : 0;
  const float offset = kAdds != 0 ? bias.at[filter_row] : 0.0;
  const int to_x = image * target_image + filter_row * target_filter + x * x_step;
  uint inside[kMostSpan], every[kMostSpan];
  find_inside(from_x, across, kSpan, inside);
  [[unroll]] for (int e = 0; e < kMostSpan; ++e) every[e] = ~0u;
  for (int y = 0; y < high; y += kTall) {
    float sums[kTall][kPlaces];
    [[unroll]] for (int t = 0; t < kTall; ++t)
      [[unroll]] for (int q = 0; q < kPlaces; ++q) sums[t][q] = 0.0;
    for (int c = 0; c < int(kChannels); ++c) {
      float factors[kMostTaps];
      [[unroll]] for (int f = 0; f < (kHigh * kWide + 3) / 4; ++f) {
        const vec4 four = texelFetch(a, from_a + weight + c * weight_step + f);
        [[unroll]] for (int q = 0; q < 4; ++q) factors[4 * f + q] = four[q];
      }
      const int from = ((image * all_channels + channel + c) * down) * across + from_x;
      [[unroll]] for (int r = 0; r < kRows; ++r) {
        const int from_y = y0 + y * kStepDown + r;
        float found[kMostSpan];
        read(b, from_b, to_b, from + from_y * across, kBegin, kSpan,
             ones_if(from_y >= 0 && from_y < down), inside, found);
        [[unroll]] for (int t = 0; t < kTall; ++t)
          [[unroll]] for (int ky = 0; ky < kHigh; ++ky)
            if (t * kStepDown + ky * kApartDown == r)
              [[unroll]] for (int kx = 0; kx < kWide; ++kx)
                [[unroll]] for (int q = 0; q < kPlaces; ++q)
                  sums[t][q] += factors[ky * kWide + kx] *
                                found[q * kStepAcross + kx * kApartAcross];
      }
    }
    [[unroll]] for (int t = 0; t < kTall; ++t)
      [[unroll]] for (int q = 0; q < kPlaces; ++q)
        if (y + t < high && q < room)
          to.at[to_x + (y + t) * y_step + q * x_step] =
              kAdds != 0 ? sums[t][q] + offset : sums[t][q];
  }
}
#endif
