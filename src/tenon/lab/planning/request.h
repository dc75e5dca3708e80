// What is packed, and the result.
#pragma once

#include <cstdint>
#include <vector>

namespace tenon {

// One block of a program: its size and its life, in any unit of time: it lives in [begin, end).
struct PlanRequest {
  std::uint64_t size = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

// Where each request goes, and how good that is.
struct Packing {
  std::vector<std::uint64_t> offsets;   // by request
  std::uint64_t peak_bytes = 0;         // the highest end
  std::uint64_t lower_bound_bytes = 0;  // most bytes live at once: no packing needs less
};

}  // namespace tenon
