// PyTorch's expandable segments, by its rules. Thread safety and failure: as DeviceAllocator
// (device_allocator.h). A request that free memory serves is O(log free blocks).
#pragma once

#include <exception>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tenon/memory/gpu/stream_ordered_allocator.h"

namespace tenon {

// One growable address range per (pool, stream), with pages mapped behind its end in handles of 2
// MiB (small) or 20 MiB (large). So its reserved bytes are PyTorch's to the byte.
//
//   range:  | used | free | used | free ......|  unbacked addresses  ... |
//           |<--- handles of one size, mapped --->|
//
// Growth starts at the free block before the lowest unbacked addresses that have room, and maps the
// missing bytes, in whole handles. Under pressure the handles wholly inside free blocks are
// unmapped, after waiting for their stream. As in PyTorch, the limit is tested with the nominal
// segment size, so mapping may pass it by less than one handle.
class ExpandableAllocator final : public StreamOrderedAllocator {
 public:
  // Throws InvalidArgument when the backend has no virtual memory.
  explicit ExpandableAllocator(Backend& backend, const CachingSettings& settings = {},
                               std::uint64_t limit_bytes = 0);
  // Waits for the device, then gives all pages and addresses back, whatever is still in use.
  ~ExpandableAllocator() override;

  std::string name() const override { return "expandable"; }

 protected:
  bool grow_pool(BlockHeap& heap, Pool pool, std::uint64_t rounded) override;
  bool release_cached() override;
  PoolRules pool_rules(Pool pool) const override { return pytorch_pool_rules(pool, true); }

 private:
  struct Range {
    AddressRange addresses;
    std::uint64_t handle_size = 0;
    // By position; id 0 where nothing is mapped. Pages may also lie at unbacked addresses, where
    // the driver refused to undo what another failure had broken off. No block has used those.
    std::vector<PageHandle> pages;
  };

  // How far unmap_pages came, from the front.
  struct Unmapped {
    std::uint64_t bytes = 0;   // addresses that have no pages any more
    std::exception_ptr error;  // what stopped it
  };

  bool map_room(BlockHeap& heap, Pool pool, std::uint64_t rounded);
  Block* find_room(BlockHeap& heap, Pool pool, std::uint64_t rounded);
  Block* add_range(BlockHeap& heap, Pool pool, std::uint64_t rounded);
  Block* map_front(BlockHeap& heap, Block* block, std::uint64_t bytes);
  bool map_pages(Range& range, Pool pool, std::uintptr_t address, std::uint64_t bytes);
  Unmapped unmap_pages(Range& range, Pool pool, std::uintptr_t address, std::uint64_t bytes);
  void release_loose_pages();
  std::uint64_t unmap_inside(BlockHeap& heap, Block* block);

  std::unordered_map<const Extent*, Range> ranges_;  // under growth_mutex_
  // Just made, or unmapped and not yet taken back. They are reserved, as mapped ones are.
  std::vector<std::pair<Pool, PageHandle>> loose_pages_;
  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
