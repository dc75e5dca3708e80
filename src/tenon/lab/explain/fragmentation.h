// Why more is reserved than requested, by cause. Thread-safe: pure functions of their arguments.
// The only error is lack of memory (std::bad_alloc).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/memory/gpu/pytorch_rules.h"
#include "tenon/trace/snapshot.h"

namespace tenon {

// A segment that one block alone keeps from going back to the driver.
struct HeldSegment {
  std::uint64_t address = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t block_bytes = 0;
  std::uint32_t site = 0;
};

// Free bytes that one stream keeps.
struct StreamBytes {
  std::uint64_t stream = 0;  // the recording's own value
  std::uint64_t free_bytes = 0;
};

// What a PyTorch process holds from the driver at one moment, seen from one stream. Each byte is
// counted once:
//
//   reserved = requested + rounding + unsplit + other_pools + stranded + cached + held + holes
struct Fragmentation {
  std::uint64_t stream = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t requested_bytes = 0;  // by blocks in use, those that wait for streams included

  std::uint64_t rounding_bytes = 0;     // blocks in use, as the settings round their requests
  std::uint64_t unsplit_bytes = 0;      // blocks in use that are larger still: rests too small
  std::uint64_t other_pools_bytes = 0;  // free in private pools (graphs, the program's own)
  std::uint64_t stranded_bytes = 0;     // free on other streams
  std::uint64_t cached_bytes = 0;       // segments that are wholly free
  std::uint64_t held_bytes = 0;         // free in segments that one block holds
  std::uint64_t hole_bytes = 0;         // free between blocks: what splits left behind

  std::uint64_t waiting_bytes = 0;  // of the requested: freed, but other streams may still use them
  std::uint64_t free_small_bytes = 0;      // of the free: in the pool for requests up to 1 MiB
  std::uint64_t largest_free_bytes = 0;    // one free block of the stream, in the default pool
  std::uint64_t free_blocks = 0;           // of the stream, in the default pool
  std::vector<StreamBytes> stranded;       // by stream, most first
  std::vector<HeldSegment> held;           // most free bytes first, at most ten

  // Reserved, and not requested.
  std::uint64_t overhead_bytes() const { return reserved_bytes - requested_bytes; }
  // Of the overhead: in no block in use.
  std::uint64_t free_bytes() const {
    return other_pools_bytes + stranded_bytes + cached_bytes + held_bytes + hole_bytes;
  }
};

// By the settings that the process ran with. O(blocks).
Fragmentation fragmentation(const std::vector<SnapshotSegment>& segments, std::uint64_t stream,
                            const CachingSettings& settings);

// The stream with most bytes in use; where none are, of most segments.
std::uint64_t busiest_stream(const std::vector<SnapshotSegment>& segments);

// Whether the segment is in PyTorch's default pools, not a graph's or the program's own.
bool is_default_pool(const SnapshotSegment& segment);

}  // namespace tenon
