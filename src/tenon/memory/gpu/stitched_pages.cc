// How the policy `stitched` moves pages: Note [Stale mappings].
#include <algorithm>
#include <optional>

#include "tenon/base/reserve.h"
#include "tenon/memory/gpu/stitched_allocator.h"

namespace tenon {

// Maps a page without a home at a slot where nothing is mapped. False when the driver is short of
// memory.
bool StitchedAllocator::map_at(PageRange& range, Page* page, std::uint32_t slot) {
  std::optional<MovingScope> moving;
  if (!page->mappings.empty()) moving.emplace(backend_);
  const std::uintptr_t address = range.address_of(slot);
  range.reserve(page, slot);
  if (!backend_.map(address, page->handle)) return false;
  range.add(page, slot);
  range.mapping(slot).accessible = false;
  if (!backend_.set_access(address, page->handle.size_bytes)) {
    backend_.unmap(address, page->handle);
    range.remove(page, slot);
    return false;
  }
  range.mapping(slot).accessible = true;
  return true;
}

// The slot becomes the page's home: blocks may be placed there. Requires: mapped there, no home.
void StitchedAllocator::move_in(PageRange& range, Page* page, std::uint32_t slot) {
  BestFitHeap& blocks = blocks_of(range);
  blocks.reserve_cuts(2);  // from here on nothing throws
  std::erase(spare_, page);
  const PageRange* before = page->home.slot.range;
  if (before == nullptr)
    page->arrived = 0;
  else if (&before->heap() == &range.heap())
    page->arrived = page->home.stamp;
  else
    // This stream waits for that one since just now.
    page->arrived = range.heap().completion().advance();
  page->has_home = true;
  page->home = {{&range, slot}, 0};
  range.count_home(+1);
  Block at;
  at.offset = range.address_of(slot);
  Block* block = *std::prev(blocks.unbacked().upper_bound(&at));
  if (block->offset < at.offset) block = blocks.split_free(block, at.offset - block->offset);
  if (block->size > range.page_bytes()) blocks.split_free(block, range.page_bytes());
  // Idle pages before this one know the block: a free block that is joined keeps its lower part.
  set_idle_block(range, blocks.back(block), slot);
  note(MemoryEvent::kMapped, reinterpret_cast<void*>(at.offset), range.page_bytes(),
       range.heap().stream());
}

// An idle page leaves its home and is spare; its mapping there stays, stale.
void StitchedAllocator::move_out(Page* page) {
  PageRange& range = *page->home.slot.range;
  BestFitHeap& blocks = blocks_of(range);
  blocks.reserve_cuts(2);
  reserve_more(spare_);  // from here on nothing throws
  Block* block = page->idle_block;
  const std::uint64_t stamp = block->requested;  // the sequence number of the last free in it
  spare_.push_back(page);
  page->has_home = false;
  range.count_home(-1);
  page->home.stamp = std::max(stamp, page->arrived);
  range.mapping(page->home.slot.index).stamp = stamp;

  const std::uint64_t begin = range.address_of(page->home.slot.index);
  const std::uint64_t end = begin + range.page_bytes();
  if (begin > block->offset) block = blocks.split_free(block, begin - block->offset);
  if (end < block->offset + block->size)
    set_idle_block(range, blocks.split_free(block, end - block->offset));
  blocks.unback(block);
  note(MemoryEvent::kUnmapped, reinterpret_cast<void*>(begin), range.page_bytes(),
       range.heap().stream());
}

// Idle pages inside a block that was cut off or joined get to know it, from slot `first` on.
void StitchedAllocator::set_idle_block(PageRange& range, Block* block, std::uint32_t first) {
  for_each_page_inside(range, block, first, [&](Page* page) { page->idle_block = block; });
}

// Makes the heap's stream wait for the stream that used the page last, if that is another.
void StitchedAllocator::order_after_last_use(const Page* page, const BlockHeap& heap) {
  if (page->home.slot.range == nullptr) return;  // new
  BlockHeap& last = page->home.slot.range->heap();
  if (&last == &heap) return;
  last.completion().settled();  // often known to be complete by now: then no stream waits
  last.completion().order_before(heap.stream(), page->home.stamp);
}

// Requires: the mapping is stale. Waits until the stream is done there.
void StitchedAllocator::undo_mapping(Page* page, Mapping mapping) {
  PageRange& range = *mapping.slot.range;
  Completion& completion = range.heap().completion();
  completion.settled();
  completion.wait(mapping.stamp);
  const std::uintptr_t address = range.address_of(mapping.slot.index);
  backend_.unmap(address, page->handle);
  range.remove(page, mapping.slot.index);
}

// Requires: spare.
void StitchedAllocator::release_page(Page* page) {
  while (!page->mappings.empty()) undo_mapping(page, page->mappings.back());
  backend_.release_pages(page->handle);
  add_reserved(page->pool, -static_cast<std::int64_t>(page->handle.size_bytes));
  std::erase(spare_, page);
  std::erase_if(pages_, [&](const auto& held) { return held.get() == page; });
}

bool StitchedAllocator::release_cached() {
  finish_pending_frees();
  return release_idle(0);
}

// Releases the spare and idle pages that this growth or a later one created, after their streams
// are done with them.
bool StitchedAllocator::release_idle(std::uint64_t growth) {
  ++epoch_;
  for_each_range([&](PageRange& range) {
    const BiasedGuard lock(range.heap().lock);
    for (Page* page : idle_pages(range))
      if (page->made >= growth) move_out(page);
  });
  bool released = false;
  for (Page* page : std::vector<Page*>(spare_)) {
    if (page->made < growth) continue;
    release_page(page);
    released = true;
  }
  return released;
}

}  // namespace tenon
