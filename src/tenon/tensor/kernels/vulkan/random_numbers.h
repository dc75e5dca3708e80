// Random numbers on Vulkan devices.
#pragma once

#include <cstdint>

#include "tenon/tensor/random.h"
#include "tenon/tensor/tensor.h"

namespace tenon::vulkan {

enum class RandomKind : std::uint32_t {
  kUniform,    // from `first` up to `second`
  kNormal,     // of mean `first` and deviation `second`
  kBernoulli,  // 1 with probability `first`, else 0
};

// Queues the numbers that the host makes from the generator's counters from `start` on, into a
// dense target: the same bits, for normal numbers to the rounding of logarithm and sine. False, and
// nothing has happened, where the device would make others (without f64 all normal numbers, and
// uniform ones other than from 0 up to 1), for complex numbers, and for 2^31 elements and more.
bool random_numbers(RandomKind kind, double first, double second, const Tensor& target,
                    Generator& generator, std::uint64_t start);

}  // namespace tenon::vulkan
