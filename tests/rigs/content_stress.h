// Random use of an allocator on a real device, with kernels that would see memory reused too early.
#pragma once

#include <cstdint>

#include "tenon/device/cuda/stamp_kernels.h"
#include "tenon/memory/device_allocator.h"

namespace tenon {

struct ContentStressOptions {
  std::uint64_t seed = 1;
  std::uint64_t operations = 100'000;       // allocations and frees, over all threads
  double most_seconds = 0;                  // the rest is left out after so long; 0: never
  int threads = 1;
  int streams = 3;                          // of each thread
  std::uint64_t max_bytes = std::uint64_t{64} << 20;       // sizes spread over octaves up to it
  std::uint64_t max_live_bytes = std::uint64_t{2} << 30;   // of each thread
  double lend_chance = 0.2;                 // that a block is used on another stream, and recorded
  double empty_cache_chance = 0.0001;
  std::uint64_t stride = 61;                // every so many words of a block are looked at
};

struct ContentStressResult {
  std::uint64_t operations = 0;
  std::uint64_t allocations = 0;
  std::uint64_t lent = 0;
  std::uint64_t out_of_memory = 0;
  std::uint64_t wrong_words = 0;
};

// Each block is stamped when it is handed out and checked before it goes, on its own stream and on
// those that it is lent to; all work is queued and nobody waits for it, so whatever the allocator
// hands out too early is overwritten before its check runs. All blocks are freed at the end.
// The same seed makes the same calls in each thread, as far as time lets it. Throws CudaError.
ContentStressResult run_content_stress(CudaBackend& backend, DeviceAllocator& allocator,
                                       const ContentStressOptions& options);

}  // namespace tenon
