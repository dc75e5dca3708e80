// What the host does with rows of indices, for the best instruction set that the machine has.
#pragma once

#include <cstdint>

namespace tenon::ops::cpu {

// Whether all are in [0, size).
bool are_indices(const std::int64_t* values, std::int64_t count, std::int64_t size);

}  // namespace tenon::ops::cpu
