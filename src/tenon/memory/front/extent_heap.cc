#include "tenon/memory/front/extent_heap.h"

#include <utility>

#include "tenon/base/byte_size.h"
#include "tenon/base/check.h"
#include "tenon/base/reserve.h"

namespace tenon {
namespace {

// What a growable extent counts for in offsets, however many addresses the device gave.
constexpr std::uint64_t kGrowableBytes = 8 * kTiB;

}  // namespace

Extent& ExtentHeap::add_extent(const Segment& segment, std::uint64_t size_bytes, Pool pool,
                               bool growable) {
  auto extent = std::make_unique<Extent>();
  extent->heap = this;
  extent->origin = reinterpret_cast<std::uintptr_t>(segment.base) - offset_end_;
  extent->segment = segment;
  extent->size_bytes = size_bytes;
  extent->pool = pool;
  extent->growable = growable;
  extent->place = extents_.size();
  reserve_more(extents_);
  extent->first = give(*extent);
  // From here on nothing throws.
  offset_end_ += growable ? kGrowableBytes : extent->size_bytes;
  extent_bytes_ += extent->size_bytes;
  extents_.push_back(std::move(extent));
  return *extents_.back();
}

void ExtentHeap::forget(Extent& extent) {
  extent_bytes_ -= extent.size_bytes;
  const std::size_t place = extent.place;
  std::swap(extents_[place], extents_.back());
  extents_[place]->place = place;
  extents_.pop_back();
}

std::vector<BlockInfo> ExtentHeap::blocks_of(const Extent& extent) const {
  std::vector<BlockInfo> blocks;
  for_each_block(extent, [&](void* block, const Extent&, State state) {
    const BlockFacts of = facts(block);
    blocks.push_back({reinterpret_cast<std::uintptr_t>(of.address), of.size_bytes,
                      state == State::kInactive ? 0 : of.requested_bytes, state});
  });
  return blocks;
}

void ExtentHeap::add_snapshot(std::vector<SegmentInfo>& out) const {
  for (const auto& extent : extents_) {
    const auto base = reinterpret_cast<std::uintptr_t>(extent->segment.base);
    const bool is_small = extent->pool == Pool::kSmall;
    if (!extent->growable)
      out.push_back({base, extent->segment.size_bytes, stream(), is_small, false, {}});
    std::uintptr_t end = 0;  // of the run
    for (const BlockInfo& block : blocks_of(*extent)) {
      if (extent->growable && block.address != end)
        out.push_back({block.address, 0, stream(), is_small, true, {}});
      end = block.address + block.size_bytes;
      if (extent->growable) out.back().size_bytes = end - out.back().address;
      out.back().blocks.push_back(block);
    }
  }
}

void ExtentHeap::check_invariants() const {
  check_placement();
  Pair found[kPools] = {};
  std::int64_t requested = 0;
  const auto count_blocks = [&](const Extent& extent) {
    for_each_block(extent, [&](void* block, const Extent& named, State state) {
      const BlockFacts of = facts(block);
      TENON_CHECK(&named == &extent, "a block at {} does not name its extent", of.layout_offset);
      if (state == State::kInactive) return;
      found[static_cast<int>(extent.pool)] += Pair{1, static_cast<std::int64_t>(of.size_bytes)};
      requested += static_cast<std::int64_t>(of.requested_bytes);
    });
  };
  std::uint64_t held = 0;
  for (const auto& extent : extents_) {
    count_blocks(*extent);
    held += extent->size_bytes;
  }
  if (borrowed() != nullptr) count_blocks(*borrowed());
  TENON_CHECK(held == extent_bytes_, "extents of {} bytes, counted {}", held, extent_bytes_);
  TENON_CHECK(requested == counters.requested_bytes(), "{} bytes requested, counted {}", requested,
              counters.requested_bytes());
  for (const Pool pool : {Pool::kSmall, Pool::kLarge}) {
    const Pair in_use = found[static_cast<int>(pool)];
    const Pair counted = active(pool);
    TENON_CHECK(in_use[0] == counted[0] && in_use[1] == counted[1],
                "{} blocks of {} bytes in extents of {}, counted {} of {}", in_use[0], in_use[1],
                to_string(stream()), counted[0], counted[1]);
  }
}

}  // namespace tenon
