// What an allocator knows about itself, under PyTorch's names.
//
// Current values and totals are exact. Peaks are exact where one stream is used. With several, each
// publishes after a change of 1 MiB or 1/64 of the peak. So a peak over all of them may miss that
// much of each stream.
//
// Plain data: thread-safe while no thread writes it. O(1), except named(), and nothing throws
// except named() (std::bad_alloc).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tenon {

// One quantity over time.
struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;       // in the unit of the quantity
  std::int64_t allocated = 0;  // ever added

  // Ever taken away.
  std::int64_t freed() const { return allocated - current; }

  // Requires: the amount is not negative.
  void increase(std::int64_t amount) {
    current += amount;
    allocated += amount;
    if (current > peak) peak = current;
  }
  // As increase.
  void decrease(std::int64_t amount) { current -= amount; }
  // Peaks are added too: an upper bound.
  Stat& operator+=(const Stat& other) {
    current += other.current;
    peak += other.peak;
    allocated += other.allocated;
    return *this;
  }
};

// Where a block was placed; policies without pools count everything in both kAll and kLarge.
enum class StatPool : std::uint8_t { kAll, kSmall, kLarge, kCount };
using PoolStats = std::array<Stat, static_cast<std::size_t>(StatPool::kCount)>;

// A copy of an allocator's counts; torch.cuda.memory_stats has the same. Bytes are those of blocks,
// after rounding, unless said otherwise.
struct AllocatorStats {
  PoolStats allocation;            // blocks in use
  PoolStats segment;               // pieces of driver memory
  PoolStats active;                // blocks in use, or freed but still used by another stream
  PoolStats inactive_split;        // free blocks that share a segment with others
  PoolStats allocated_bytes;
  PoolStats reserved_bytes;        // held from the driver, caches included
  PoolStats active_bytes;
  PoolStats inactive_split_bytes;
  PoolStats requested_bytes;       // before rounding

  // With max_split_size_mb: blocks and segments of at least that size. Segments of caching alone.
  Stat oversize_allocations;
  Stat oversize_segments;

  std::int64_t num_alloc_retries = 0;     // requests that needed cached memory to be released
  std::int64_t num_ooms = 0;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;
  std::int64_t num_sync_all_streams = 0;

  // Adds what another allocator, or another share of the same one, counts. Peaks are added too: an
  // upper bound where the two were not reached at once.
  AllocatorStats& operator+=(const AllocatorStats& other);

  // "allocated_bytes.all.peak" and so on, in a fixed order, as torch.cuda.memory_stats names them.
  std::vector<std::pair<std::string, std::int64_t>> named() const;
};

// Every peak becomes the current value.
void reset_peaks(AllocatorStats& stats);

}  // namespace tenon
