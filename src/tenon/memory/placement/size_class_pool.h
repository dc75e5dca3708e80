// A pool of reusable buffers over any allocator: so many of each size at most.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tenon/base/biased_lock.h"
#include "tenon/memory/allocator.h"
#include "tenon/memory/placement/buffer_bins.h"
#include "tenon/memory/raw_blocks.h"
#include "tenon/memory/reclaim.h"

namespace tenon {

struct SizeClassPoolStats {
  std::uint64_t created = 0;     // buffers that came from upstream
  std::uint64_t reused = 0;      // requests served by a free buffer
  std::uint64_t dropped = 0;     // buffers that went back upstream, their size's bin being full
  std::uint64_t in_use = 0;
  std::uint64_t in_use_bytes = 0;
  std::uint64_t free = 0;        // waiting in the pool
  std::uint64_t free_bytes = 0;
  std::uint64_t peak_in_use_bytes = 0;
};

// Rounds each request up to a size class and keeps up to `max_per_size` free buffers of each,
// newest reused first; a program that asks for the same sizes over and over reaches its upstream no
// more. Free buffers belong to the stream that was current when they were made.
//
// Thread safety: one biased lock, not held during calls of the upstream. allocate and free: O(1).
// The pool and its upstream must outlive its buffers; buffers that are free go back upstream with
// the pool. What the upstream throws passes through, after the free buffers were offered up.
class SizeClassPool final : public Allocator, private Reclaimer {
 public:
  static constexpr std::uint32_t kDefaultMaxPerSize = 100;

  // Throws InvalidArgument for a `max_per_size` of 0.
  [[gnu::cold]] explicit SizeClassPool(Allocator& upstream,
                                       std::uint32_t max_per_size = kDefaultMaxPerSize);
  [[gnu::cold]] ~SizeClassPool() override;
  SizeClassPool(const SizeClassPool&) = delete;
  SizeClassPool& operator=(const SizeClassPool&) = delete;

  DataPtr allocate(std::size_t size_bytes) override;
  DeleterFn raw_deleter() const override { return &free_raw; }
  std::size_t alignment() const override { return upstream_.alignment(); }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    upstream_.copy_data(dest, src, size_bytes);
  }

  // The same by other names. release throws InvalidPointer for a buffer of another pool.
  DataPtr acquire(std::size_t size_bytes) { return allocate(size_bytes); }
  void release(DataPtr buffer);

  // Every free buffer goes back upstream.
  [[gnu::cold]] void trim();

  [[gnu::cold]] SizeClassPoolStats stats() const;
  std::uint32_t max_per_size() const { return max_per_size_; }

 private:
  std::string reclaim_name() const override { return "a size-class pool"; }
  std::uint64_t idle_bytes() const override { return stats().free_bytes; }
  void reclaim() override { trim(); }

  static void free_buffer(void* context);
  arena::BufferBins& bins_of(std::uint32_t stream);  // under the lock

  Allocator& upstream_;
  const Device device_;
  const std::uint32_t max_per_size_;
  mutable BiasedLock lock_;
  std::vector<std::unique_ptr<arena::BufferBins>> bins_;  // by stream; may have gaps
  SizeClassPoolStats stats_;
  ReclaimEnrolment enrolment_{IdleOrigin::allocator(upstream_), *this};  // last
};

}  // namespace tenon
