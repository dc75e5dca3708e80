// How much a unified allocator may hold: the watermarks of MPS and the limits of MLX in one place.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tenon/device/backend.h"
#include "tenon/memory/watermark.h"

namespace tenon::unified {

// On the bytes held from the driver. Growing beyond a soft limit first gives idle heaps back;
// growing beyond a hard one does not happen.
//
//   soft: the low watermark, and the memory limit (a guideline, as in MLX)
//   hard: the high watermark, and the limit that the policy was made with
//
// Cached memory may not exceed the cache limit. Neither that nor a soft limit reduces the held
// memory below the wired limit. Thread-safe: each limit is one atomic. O(1).
class MemoryLimits {
 public:
  static constexpr std::uint64_t kNoLimit = Watermarks::kNoLimit;

  // `policy_limit_bytes`: 0 is none.
  MemoryLimits(const Backend& backend, std::uint64_t policy_limit_bytes);

  // The marks of which one is soft and one hard.
  Watermarks& watermarks() { return watermarks_; }
  const Watermarks& watermarks() const { return watermarks_; }

  // Each returns the limit that was in force.
  std::uint64_t set_memory_limit(std::uint64_t bytes) { return memory_limit_.exchange(bytes); }
  std::uint64_t set_cache_limit(std::uint64_t bytes) { return cache_limit_.exchange(bytes); }
  // Throws InvalidArgument above the recommended working set.
  std::uint64_t set_wired_limit(std::uint64_t bytes);

  // The limits in force, in bytes.
  std::uint64_t memory_limit() const { return memory_limit_; }
  std::uint64_t cache_limit() const { return cache_limit_; }
  std::uint64_t wired_limit() const { return wired_limit_; }

  // What follows from all of them, in bytes; kNoLimit: none.
  std::uint64_t soft_limit_bytes() const;
  std::uint64_t hard_limit_bytes() const;
  // What would help a request that met the hard limit; names the limit at fault.
  std::string advice(std::uint64_t wanted_bytes, std::uint64_t held_bytes) const;

 private:
  const std::uint64_t policy_limit_;
  Watermarks watermarks_;
  std::atomic<std::uint64_t> memory_limit_;
  std::atomic<std::uint64_t> cache_limit_{kNoLimit};
  std::atomic<std::uint64_t> wired_limit_{0};
};

}  // namespace tenon::unified
