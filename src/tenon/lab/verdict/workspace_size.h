// Sizes that tell a workspace of cuBLAS.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "tenon/base/byte_size.h"

namespace tenon {

// cuBLAS's workspaces by default (Hopper's, others'), its "Lt" ones, and those of
// CUBLAS_WORKSPACE_CONFIG.
inline bool has_workspace_size(std::uint64_t bytes) {
  constexpr auto kBytes = std::to_array<std::uint64_t>(
      {32 * kMiB, 8'519'680, 8 * kMiB + 256 * kKiB, 4'259'840, kMiB, 64 * kMiB});
  return std::find(kBytes.begin(), kBytes.end(), bytes) != kBytes.end();
}

// A handle has one workspace for each stream: more blocks of one size than this are something else.
inline constexpr std::uint64_t kMostWorkspaces = 2;

}  // namespace tenon
