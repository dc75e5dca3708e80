// PyTorch's rules: how its CUDA caching allocator rounds, pools, cuts and grows, by its settings
// (PYTORCH_ALLOC_CONF). Policies and explanations alike go by these.
//
// Thread-safe: pure functions of their arguments. Parsing is O(length of the text), the rest O(1).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "tenon/base/byte_size.h"

namespace tenon {

// The constants of PyTorch's CUDA caching allocator.
inline constexpr std::uint64_t kMinBlockSize = 512;          // every size is rounded up to these
inline constexpr std::uint64_t kSmallSize = kMiB;            // largest "small" request
inline constexpr std::uint64_t kSmallSegment = 2 * kMiB;     // what small blocks are cut from
// What large blocks below 10 MiB are cut from
inline constexpr std::uint64_t kLargeSegment = 20 * kMiB;
inline constexpr std::uint64_t kMinLargeAlloc = 10 * kMiB;   // from here on, a segment of its own
inline constexpr std::uint64_t kRoundLarge = 2 * kMiB;       // ... rounded up to these

// What a block is cut by.
struct CutRules {
  std::uint64_t min_rest = kMinBlockSize;  // a smaller rest stays with its block
  std::uint64_t max_cut = std::numeric_limits<std::uint64_t>::max();  // from here on, none is cut

  // Whether a free block is cut for a request, rounded, that it has room for.
  bool cuts(std::uint64_t block_bytes, std::uint64_t rounded) const {
    return block_bytes - rounded >= min_rest && rounded < max_cut;
  }
};

// PyTorch's allocator settings, as numbers. Sizes are in bytes.
struct CachingSettings {
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
  static constexpr int kRoundupIntervals = 16;  // 1 MiB, 2 MiB, ... 32 GiB and above

  std::uint64_t max_split_size = kNoLimit;             // larger blocks are neither split nor lent
  // How much larger a lent oversize block may be
  std::uint64_t max_non_split_rounding = kLargeSegment;
  std::uint64_t large_segment_size = kLargeSegment;
  std::array<std::uint64_t, kRoundupIntervals> roundup_power2_divisions = {};
  double garbage_collection_threshold = 0;             // 0: off
  double per_process_memory_fraction = 1;
  bool expandable_segments = false;
  // Of free blocks of one size, that in the segment that was made first is taken, as PyTorch does
  // from 2.13 on; else that at the lowest address, as up to 2.11. No key of the text sets it.
  bool oldest_segment_first = false;

  // The size of the block that serves a request of `size_bytes` > 0.
  std::uint64_t round_size(std::uint64_t size_bytes) const;
  // The size of the segment that a block of `rounded` bytes is cut from.
  std::uint64_t segment_size(std::uint64_t rounded) const;
  // In segments of the pool for small blocks, or that grow, every rest is worth keeping.
  CutRules cut_rules(bool small_pool, bool expandable) const {
    if (small_pool || expandable) return {};
    return {kSmallSize + 1, max_split_size};
  }
};

// Parses "key:value,key:value" as PyTorch does, lists such as [256:1,512:2,>:8] included. `backend`
// and keys that concern pinned memory, graphs or locking are checked and have no effect here.
// Throws InvalidArgument naming the key, the value, and what would be accepted.
CachingSettings parse_caching_settings(std::string_view conf);

}  // namespace tenon
