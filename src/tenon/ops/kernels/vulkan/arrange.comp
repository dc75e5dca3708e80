// A copy of numbers that lie anywhere: target[batch, i, j, y, x], rows of x padded with zeros, from
// texels, which drivers that compute on the host load for all lanes at once.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "numbers.glsl"

layout(local_size_x = 1, local_size_y = 8) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Target { float at[]; };
layout(set = 0, binding = 0) uniform samplerBuffer source;

layout(push_constant, std430) uniform Arguments {
  Target target;
  int first_texel, first;  // of the source, and in it the first element
  int lines, across;       // of i, of j
  int height, width, row;  // of y, of x, of x with its zeros
  int batch_step, i_step, j_step, y_step, x_step;  // in the source
};

const int kLines = 16;  // of a group: what lanes read lies far apart, and near what they read next

void main() {
  // In loops lavapipe loads arguments lane by lane.
  Target to = target;
  const int texels = first_texel, high = height, wide = width, all = row;
  const int down = y_step, right = x_step, next = i_step, columns = across;
  const int j = int(gl_GlobalInvocationID.y), i0 = int(gl_WorkGroupID.x) * kLines;
  const int batch = int(gl_WorkGroupID.z), count = lines;
  const int end = min(i0 + kLines, count);
  if (j >= columns) return;
  int from_line = first + batch * batch_step + i0 * next + j * j_step;
  for (int i = i0; i < end; ++i) {
    int from_row = from_line, at = ((batch * count + i) * columns + j) * high * all;
    for (int y = 0; y < high; ++y) {
      int from = from_row;
      for (int x = 0; x < all; ++x) {
        const vec4 four = texelFetch(source, texels + (from >> 2));
        const vec2 two = (from & 2) != 0 ? four.zw : four.xy;
        to.at[at] = x < wide ? (from & 1) != 0 ? two.y : two.x : 0.0;
        from += right;
        ++at;
      }
      from_row += down;
    }
    from_line += next;
  }
}
