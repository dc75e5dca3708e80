// Arguments of the kernels for convolutions by shifted planes (shifts.comp). A kernel's taps are
// counted [channels of a group, kernel rows, kernel columns].
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Target { float at[]; };
layout(set = 0, binding = 0) uniform samplerBuffer a;  // the weight, or the gradient of the places
layout(set = 1, binding = 0) uniform samplerBuffer b;  // the shifted planes

layout(push_constant, std430) uniform Arguments {
  Target target;
  int first_a, first_b;   // texels, as all distances in a and b
  int rows, taps;         // of a group
  int images, fours;      // texels of an image's places
  int row, width;         // of places: texels, and places
  int kernel_height, kernel_width;
  int a_row, a_image, a_group;
  int b_image, b_y, b_channel, b_tap_y, b_tap_x, b_last, b_group;
  int target_image, target_row, target_y, target_x, target_group;  // in elements
  Target bias;  // of each filter
};

// n / d for n < 2^20 and d > 0, since lavapipe divides integers lane by lane.
int quotient(int n, int d) { return int((float(n) + 0.5) / float(d)); }

// Where the planes have what a tap sees; for the last tap, that is b_last.
int tap_at(int tap) {
  const int line = quotient(tap, kernel_width), channel = quotient(line, kernel_height);
  return channel * b_channel + (line - channel * kernel_height) * b_tap_y +
         (tap - line * kernel_width) * b_tap_x;
}
