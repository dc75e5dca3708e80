// The gradient of a convolution's weight by windows of three by three: out[filter, channel, ky, kx]
// = the sum over images, y and x of gradient[filter, y, x] image[channel, y + ky - 1, x + kx - 1].
// As matmul_texels.comp: a subgroup of 8 lanes makes 32 filters by 16 rows of kernels. It takes four
// places at once, a texel of each plane, which it reads once for the three places of a kernel's row.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "numbers.glsl"

layout(local_size_x = 8) in;

const uint kDown = 4, kParts = 2;  // of a lane: filters in eights, rows of kernels
const uint kTaps = 3;

layout(constant_id = 0) const uint kAdds = 0;  // 1: the target is added

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Target { float at[]; };
layout(set = 0, binding = 0) uniform samplerBuffer gradient;
layout(set = 1, binding = 0) uniform samplerBuffer images;

layout(push_constant, std430) uniform Arguments {
  Target target;
  uint first_gradient, first_image;  // texels
  uint filters, kernel_rows;         // 3 of each channel
  uint count;                        // images
  int height, row;                   // of a plane; texels
};

void main() {
  const uint lane = gl_LocalInvocationID.x;
  const uint row0 = gl_WorkGroupID.x * 8 * kParts, filter0 = gl_WorkGroupID.y * 8 * kDown;
  // In loops and branches lavapipe loads arguments lane by lane.
  Target to = target;
  const uint last_filter = filters - 1, last_row = kernel_rows - 1;
  const int planes = height, across = row, plane = height * row, all = int(count);
  const int gradient_step = int(filters) * plane, image_step = int(kernel_rows / kTaps) * plane;
  const int end = int(first_image) + all * image_step - 1;
  // Beyond the border the last filter or row is computed again and not written.
  int at_gradient[kDown], at_image[kParts], shift[kParts];
  [[unroll]] for (uint i = 0; i < kDown; ++i)
    at_gradient[i] = int(first_gradient + min(filter0 + 8 * i + lane, last_filter) * uint(plane));
  [[unroll]] for (uint p = 0; p < kParts; ++p) {
    const uint kernel_row = min(row0 + 8 * p + lane, last_row), channel = kernel_row / kTaps;
    shift[p] = int(kernel_row - channel * kTaps) - 1;
    at_image[p] = int(first_image + channel * uint(plane)) + shift[p] * across;
  }
  float sums[8 * kDown][kParts * kTaps];
  [[unroll]] for (uint i = 0; i < 8 * kDown; ++i)
    [[unroll]] for (uint j = 0; j < kParts * kTaps; ++j) sums[i][j] = 0.0;
  // The texel before, this one and the next one; those of other rows count as zeros.
  float before[kParts];
  [[unroll]] for (uint p = 0; p < kParts; ++p) before[p] = 0.0;
  int x = 0, y = 0, image = 0, place = 0;
  for (int step = all * plane; step > 0; --step) {
    float left[kDown][4];
    [[unroll]] for (uint i = 0; i < kDown; ++i) {
      const vec4 four = texelFetch(gradient, at_gradient[i] + image * gradient_step + place);
      [[unroll]] for (uint q = 0; q < 4; ++q) left[i][q] = four[q];
    }
    [[unroll]] for (uint p = 0; p < kParts; ++p) {
      const int at = at_image[p] + image * image_step + place;
      const bool inside = y + shift[p] >= 0 && y + shift[p] < planes;
      const vec4 four = texelFetch(images, clamp(at, int(first_image), end));
      const float after = texelFetch(images, clamp(at + 1, int(first_image), end)).x;
      float found[4 + kTaps - 1];
      found[0] = inside && x > 0 ? before[p] : 0.0;
      [[unroll]] for (uint q = 0; q < 4; ++q) found[1 + q] = inside ? four[q] : 0.0;
      found[5] = inside && x + 1 < across ? after : 0.0;
      before[p] = four.w;
      // Each lane takes its filters from the lane `other` places across.
      [[unroll]] for (uint i = 0; i < kDown; ++i)
        [[unroll]] for (uint other = 0; other < 8; ++other)
          [[unroll]] for (uint q = 0; q < 4; ++q) {
            const float of_filter = subgroupShuffleXor(left[i][q], other);
            [[unroll]] for (uint t = 0; t < kTaps; ++t)
              sums[8 * i + other][kTaps * p + t] += of_filter * found[q + t];
          }
    }
    ++place;
    if (++x == across) {
      x = 0;
      if (++y == planes) {
        y = place = 0;
        ++image;
      }
    }
  }
  [[unroll]] for (uint i = 0; i < kDown; ++i)
    [[unroll]] for (uint other = 0; other < 8; ++other)
      [[unroll]] for (uint p = 0; p < kParts; ++p) {
        const uint of_filters = filter0 + 8 * i + (lane ^ other), kernel_row = row0 + 8 * p + lane;
        if (of_filters <= last_filter && kernel_row <= last_row)
          [[unroll]] for (uint t = 0; t < kTaps; ++t) {
            const uint at = (of_filters * (last_row + 1) + kernel_row) * kTaps + t;
            const float sum = sums[8 * i + other][kTaps * p + t];
            to.at[at] = kAdds != 0 ? sum + to.at[at] : sum;
          }
      }
}
