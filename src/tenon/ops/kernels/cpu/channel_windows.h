// Windows over elements whose channels lie side by side: pools of channels-last tensors, and
// convolutions of their single channels.
#pragma once

#include <cstdint>

namespace tenon::ops::cpu {

// `pitch` elements of the tensor lie from a row to the next.
struct ChannelWindow {
  std::int64_t rows, columns, channels, pitch;
};

// Where each element has a tap: `across` elements of the tensor lie from a column to the next, and
// `tap_pitch` taps from a row of them to the next.
struct WeighedWindow {
  ChannelWindow window;
  std::int64_t across, tap_pitch;
};

// For floats of any size, 16-bit ones computed in f32. Each channel of a window by itself.
template <typename T>
struct ChannelPoolKernels {
  // The largest element, or a NaN if there is one; minus infinity of none.
  void (*largest)(T* out, const T* in, const ChannelWindow& window);
  // The sum / `count`.
  void (*average)(T* out, const T* in, const ChannelWindow& window, double count);
  // The number (row by row) of the first largest element, or of a NaN. At most 256 elements.
  void (*choices)(std::uint8_t* out, const T* in, const ChannelWindow& window);
};

// For T = float and double. Each channel of a window by itself, its elements row by row.
template <typename T>
struct ChannelWindowKernels {
  // Adds dy / `count` to each element.
  void (*share)(T* dx, const T* dy, const ChannelWindow& window, T count);
  // Adds dy to the chosen elements.
  void (*add_to_chosen)(T* dx, const T* dy, const std::uint8_t* choices,
                        const ChannelWindow& window);
  // Of `places` windows that lie `step` elements apart: the bias, if not null, and each element
  // times its tap.
  void (*weigh)(T* out, const T* in, const T* taps, const T* bias, const WeighedWindow& window,
                std::int64_t places, std::int64_t step);
  // Adds to each tap the sum over such places of dy times the element there.
  void (*correlate)(T* taps, const T* in, const T* dy, const WeighedWindow& window,
                    std::int64_t places, std::int64_t step);
};

// For the best instruction set that the machine has.
template <typename T>
const ChannelWindowKernels<T>& channel_window_kernels();
template <typename T>
const ChannelPoolKernels<T>& channel_pool_kernels();

}  // namespace tenon::ops::cpu
