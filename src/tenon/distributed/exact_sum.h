// Sums of squares without rounding.
#pragma once

#include <array>
#include <cstdint>

#include "tenon/tensor/tensor.h"

namespace tenon::distributed {

class ProcessGroup;

// Adds up squares in integers, one for each 32 powers of two: no order and no number of ranks
// changes the sum. 1 KiB; exact for up to 2^43 squares. The square of an f64 is rounded first.
class SquareSum {
 public:
  // A contiguous f32 or f64 tensor that the host reaches. O(elements), on one thread.
  void add(const Tensor& tensor);
  // With what every other rank has added, at every rank.
  void reduce(ProcessGroup& group);
  // Rounded. Infinite where an element was infinite or NaN.
  double value() const;

 private:
  __extension__ using Wide = __int128;
  static constexpr std::size_t kBins = 64;

  void add_square(double square);

  std::array<Wide, kBins> bins_{};
  bool finite_ = true;
};

}  // namespace tenon::distributed
