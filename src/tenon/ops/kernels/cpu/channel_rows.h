// Loops over rows of channels that lie side by side: normalisations of channels-last batches.
#pragma once

#include <cstdint>

namespace tenon::ops::cpu {

// For T = float and double; all arrays but the rows have a number for each channel.
template <typename T>
struct ChannelRowKernels {
  // Adds the sum of x - shift to `sums`, and that of their squares to `squares`.
  void (*moments)(const T* x, const T* shift, std::int64_t rows, std::int64_t channels, T* sums,
                  T* squares);
  // out = x * factor + shift.
  void (*scale)(T* out, const T* x, const T* factor, const T* shift, std::int64_t rows,
                std::int64_t channels);
  // Adds the sum of g to `sums`, and that of g * (x - mean) to `products`.
  void (*products)(const T* g, const T* x, const T* mean, std::int64_t rows, std::int64_t channels,
                   T* sums, T* products);
  // out = g * of_g + (x - mean) * of_x + rest.
  void (*combine)(T* out, const T* g, const T* x, const T* of_g, const T* mean, const T* of_x,
                  const T* rest, std::int64_t rows, std::int64_t channels);
};

// For the best instruction set that the machine has.
template <typename T>
const ChannelRowKernels<T>& channel_row_kernels();

}  // namespace tenon::ops::cpu
