// What training does to dense rows of f32, each in one pass or two over the row.
#pragma once

#include <cstdint>

namespace tenon::ops::cpu {

// Outputs may be the gradient that came in.
struct TrainingRows {
  // y (dy - sum(dy y)) * scale.
  void (*softmax)(float* dx, const float* dy, const float* y, std::int64_t count, float scale);
  // One plane [height, width] under a kernel without padding.
  struct Plane {
    std::int64_t height, width, out_height, out_width;
    std::int64_t kernel_height, kernel_width, stride_height, stride_width;
  };
  // For each window the number (row by row) of its first largest element, or of a NaN; and the
  // gradient of the plane from that of the windows.
  void (*max_pool_choices)(std::uint8_t* choices, const float* x, const Plane& plane);
  void (*max_pool_gradient)(float* dx, const float* dy, const std::uint8_t* choices,
                            const Plane& plane);
  // Bit i % 8 of byte i / 8: x[i] is not <= 0. And dy where the bit is set, else 0.
  void (*passing_bits)(std::uint8_t* bits, const float* x, std::int64_t count);
  void (*where_passing)(float* dx, const float* dy, const std::uint8_t* bits, std::int64_t count);
};

// For the best instruction set that the machine has.
const TrainingRows& training_rows();

}  // namespace tenon::ops::cpu
