// Planes of images, once for each column of a kernel, shifted as that column sees them: [planes,
// columns, rows, texels of a row]. Beyond the image, and beyond the places of a row, are zeros. So
// what four neighbouring places see by one number of the kernel is a texel.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "numbers.glsl"

layout(local_size_x = 8) in;

layout(constant_id = 0) const uint kSlides = 0;  // 1: places are one element apart

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Target { float at[]; };
layout(set = 0, binding = 0) uniform samplerBuffer images;

layout(push_constant, std430) uniform Arguments {
  Target target;
  int first, last;  // texels of the images
  int planes, height, width;
  int shifts, rows, row;    // of a plane of the target: columns of the kernel, rows, a row's texels
  int places;               // of a row
  int row_step, step;       // between rows and places, in elements of the image
  int apart;                // between the kernel's columns
  int top, left;            // what the first place sees by the first number of the kernel
};

vec4 texel(int i) { return texelFetch(images, clamp(first + i, first, last)); }

// Four neighbours; i may be beyond the images.
vec4 four_at(int i) {
  const vec4 here = texel(i >> 2), next = texel((i >> 2) + 1);
  const bool by_one = (i & 1) != 0, by_two = (i & 2) != 0;
  const vec4 one = by_one ? vec4(here.yzw, next.x) : here;
  const vec2 two = by_one ? next.yz : next.xy;
  return by_two ? vec4(one.zw, two) : one;
}

float one_at(int i) {
  const vec4 here = texel(i >> 2);
  const vec2 two = (i & 2) != 0 ? here.zw : here.xy;
  return (i & 1) != 0 ? two.y : two.x;
}

void main() {
  // In loops lavapipe loads arguments lane by lane.
  const int count = planes * row, begin = top, end = height, down = row_step, across = width;
  const int all_rows = rows, all_shifts = shifts, texels = row, between = apart, wide = places;
  Target to = target;
  const int i = int(gl_GlobalInvocationID.x);
  if (i >= count) return;
  const int plane = i / texels, x = i - plane * texels, place = 4 * x;
  int at = plane * all_shifts * all_rows * texels + x;
  const int seen = left + place * step, one = step;
  for (int shift = 0; shift < all_shifts; ++shift) {
    const int from_x = seen + shift * between;
    bool has[4];
    [[unroll]] for (int q = 0; q < 4; ++q)
      has[q] = from_x + q * one >= 0 && from_x + q * one < across && place + q < wide;
    int y = begin;
    for (int r = 0; r < all_rows; ++r) {
      const int from = (plane * end + y) * across + from_x;
      const bool inside = y >= 0 && y < end;
      vec4 found;
      if (kSlides != 0)
        found = four_at(from);
      else
        [[unroll]] for (int q = 0; q < 4; ++q) found[q] = one_at(from + q * one);
      [[unroll]] for (int q = 0; q < 4; ++q)
        to.at[4 * at + q] = inside && has[q] ? found[q] : 0.0;
      at += texels;
      y += down;
    }
  }
}
