#include "tenon/lab/explain/fragmentation.h"

#include <algorithm>
#include <map>

namespace tenon {
namespace {

constexpr std::size_t kMaxHeld = 10;

void count_used(const SnapshotBlock& block, const CachingSettings& settings, Fragmentation& out) {
  const std::uint64_t requested = std::min(block.requested_bytes, block.size_bytes);
  out.requested_bytes += requested;
  if (block.state == BlockState::kPendingFree) out.waiting_bytes += requested;
  const std::uint64_t rounded = std::max(requested, settings.round_size(requested));
  const std::uint64_t rounding = std::min(rounded, block.size_bytes) - requested;
  out.rounding_bytes += rounding;
  out.unsplit_bytes += block.size_bytes - requested - rounding;
}

}  // namespace

bool is_default_pool(const SnapshotSegment& segment) {
  return segment.pool.empty() || segment.pool == "(0, 0)";
}

std::uint64_t busiest_stream(const std::vector<SnapshotSegment>& segments) {
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> bytes;  // in use, held
  for (const SnapshotSegment& segment : segments) {
    auto& [used, held] = bytes[segment.stream];
    held += segment.total_bytes;
    for (const SnapshotBlock& block : segment.blocks)
      if (block.in_use()) used += block.size_bytes;
  }
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) {
    return a.second < b.second;
  });
  return most == bytes.end() ? 0 : most->first;
}

Fragmentation fragmentation(const std::vector<SnapshotSegment>& segments, std::uint64_t stream,
                            const CachingSettings& settings) {
  Fragmentation out;
  out.stream = stream;
  std::map<std::uint64_t, std::uint64_t> stranded;
  for (const SnapshotSegment& segment : segments) {
    std::uint64_t used_blocks = 0;
    std::uint64_t free = 0;
    std::uint64_t largest = 0;
    std::uint64_t free_blocks = 0;
    const SnapshotBlock* last_used = nullptr;
    for (const SnapshotBlock& block : segment.blocks) {
      // What the blocks cover, so that the sum is right in a file whose totals are not.
      out.reserved_bytes += block.size_bytes;
      if (block.in_use()) {
        count_used(block, settings, out);
        last_used = &block;
        ++used_blocks;
      } else {
        free += block.size_bytes;
        largest = std::max(largest, block.size_bytes);
        ++free_blocks;
      }
    }
    if (segment.small_pool) out.free_small_bytes += free;
    if (!is_default_pool(segment)) {
      out.other_pools_bytes += free;
      continue;
    }
    if (segment.stream != stream) {
      out.stranded_bytes += free;
      if (free > 0) stranded[segment.stream] += free;
      continue;
    }
    out.free_blocks += free_blocks;
    out.largest_free_bytes = std::max(out.largest_free_bytes, largest);
    if (used_blocks == 0) {
      out.cached_bytes += free;
    } else if (used_blocks == 1) {
      out.held_bytes += free;
      if (free > 0)
        out.held.push_back(
            {segment.address, segment.total_bytes, last_used->size_bytes, last_used->site});
    } else {
      out.hole_bytes += free;
    }
  }
  for (const auto& [other, bytes] : stranded) out.stranded.push_back({other, bytes});
  std::stable_sort(
      out.stranded.begin(), out.stranded.end(),
      [](const StreamBytes& a, const StreamBytes& b) { return a.free_bytes > b.free_bytes; });
  std::stable_sort(out.held.begin(), out.held.end(), [](const auto& a, const auto& b) {
    return a.total_bytes - a.block_bytes > b.total_bytes - b.block_bytes;
  });
  if (out.held.size() > kMaxHeld) out.held.resize(kMaxHeld);
  return out;
}

}  // namespace tenon
