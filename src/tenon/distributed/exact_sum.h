// Sums of squares without rounding.
#pragma once

#include <array>
#include <cstdint>

#include "tenon/tensor/tensor.h"

namespace tenon::distributed {

class ProcessGroup;

// Adds squares in integers, one for each range of 32 binary exponents, so the sum depends neither
// on the order nor on the number of ranks. 1 KiB. Exact for up to 2^43 squares; the square of an
// f64 is rounded first.
class SquareSum {
 public:
  // A contiguous f32 or f64 tensor in memory that the host can read. O(elements), one thread.
  void add(const Tensor& tensor);
  // Adds what the other ranks have added. All ranks call it, and all have the sum.
  void reduce(ProcessGroup& group);
  // The sum, rounded to a double. Infinity where an element was infinite or NaN.
  double value() const;

 private:
  __extension__ using Wide = __int128;
  static constexpr std::size_t kBins = 64;

  void add_square(double square);

  std::array<Wide, kBins> bins_{};
  bool finite_ = true;
};

}  // namespace tenon::distributed
