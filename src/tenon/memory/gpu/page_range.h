// Addresses of one (stream, pool), and the physical pages mapped at them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tenon/base/reserve.h"
#include "tenon/device/backend.h"
#include "tenon/memory/gpu/block_heap.h"

namespace tenon {

class PageRange;

// One page's worth of addresses: a position in a range.
struct Slot {
  PageRange* range = nullptr;
  std::uint32_t index = 0;

  friend bool operator==(const Slot&, const Slot&) = default;
};

// A slot at which a page is mapped. `stamp`: once the page has left, its stream's sequence number
// when blocks last lived there; the mapping is in use until that is settled.
struct Mapping {
  Slot slot;
  std::uint64_t stamp = 0;
  bool accessible = true;  // false: the driver took it neither further nor back; good for nothing
};

// One physical handle. Blocks live in at most one of the slots where it is mapped, its home. The
// other mappings are stale: Note [Stale mappings].
struct Page {
  PageHandle handle;
  Pool pool = Pool::kLarge;       // for whose blocks it was created; statistics count it there
  std::uint64_t made = 0;         // the growth that created it
  bool has_home = false;
  Mapping home;                   // while spare: where it last was; range null for a new page
  // What ran before it came home, in its stream's numbers: a taker that had no block in it must
  // still be ordered behind its last use elsewhere.
  std::uint64_t arrived = 0;
  std::vector<Mapping> mappings;  // home included, oldest first

  // Scratch of the growth under way:
  std::uint64_t idle_epoch = 0;   // equal to the growth's: no block lives in the page,
  Block* idle_block = nullptr;    // and this free block contains it
  std::uint64_t seen = 0;         // the last window that counted it
};

// A range of addresses in slots. Knows what is mapped where, and moves nothing.
class PageRange {
 public:
  PageRange(AddressRange addresses, std::uint64_t page_bytes)
      : addresses_(addresses), page_bytes_(page_bytes) {}

  // Requires: before anything else.
  void set_extent(Extent* extent) { extent_ = extent; }

  Extent* extent() const { return extent_; }
  BlockHeap& heap() const { return BlockHeap::heap_of(*extent_); }
  AddressRange addresses() const { return addresses_; }
  std::uint64_t page_bytes() const { return page_bytes_; }
  bool takes(const Page* page) const { return page->handle.size_bytes == page_bytes_; }

  std::uintptr_t address_of(std::uint32_t slot) const {
    return addresses_.base + slot * page_bytes_;
  }
  // The slot that holds the address.
  std::uint32_t slot_at(std::uintptr_t address) const {
    return static_cast<std::uint32_t>((address - addresses_.base) / page_bytes_);
  }
  // The first slot that starts at or after the address.
  std::uint32_t slot_from(std::uintptr_t address) const {
    return slot_at(address + page_bytes_ - 1);
  }

  // The page mapped at the slot, at home there or stale; null: none.
  Page* mapped(std::uint32_t slot) const {
    return slot < mapped_.size() ? mapped_[slot] : nullptr;
  }
  // True when blocks may live in the slot: the page mapped there is at home.
  bool is_backed(std::uint32_t slot) const {
    const Page* page = mapped(slot);
    return page != nullptr && page->has_home && page->home.slot.range == this &&
           page->home.slot.index == slot;
  }
  // The page's entry for the slot. Requires: the page is mapped there.
  Mapping& mapping(std::uint32_t slot) const {
    for (Mapping& m : mapped_[slot]->mappings)
      if (m.slot.range == this && m.slot.index == slot) return m;
    __builtin_unreachable();
  }

  // After this add() does not throw.
  void reserve(Page* page, std::uint32_t slot) {
    if (mapped_.size() <= slot) mapped_.resize(slot + 1);
    reserve_more(page->mappings);
  }
  void add(Page* page, std::uint32_t slot) {
    mapped_[slot] = page;
    page->mappings.push_back({{this, slot}, 0});
  }
  void remove(Page* page, std::uint32_t slot) {
    mapped_[slot] = nullptr;
    std::erase_if(page->mappings, [&](const Mapping& m) {
      return m.slot == Slot{this, slot};
    });
  }
  // A page came to live here (1), or left (-1).
  void count_home(int change) { homes_ += change; }
  std::uint64_t home_bytes() const { return static_cast<std::uint64_t>(homes_) * page_bytes_; }
  // Slots from here on were never mapped.
  std::uint32_t slots_used() const { return static_cast<std::uint32_t>(mapped_.size()); }

 private:
  Extent* extent_ = nullptr;
  AddressRange addresses_;
  std::uint64_t page_bytes_;
  std::vector<Page*> mapped_;  // by slot
  std::int64_t homes_ = 0;
};

// The pages all of whose addresses lie in a free backed block, from slot `first` on.
template <typename Visit>
void for_each_page_inside(const PageRange& range, const Block* block, std::uint32_t first,
                          Visit&& visit) {
  const std::uint32_t end = range.slot_at(block->offset + block->size);
  for (std::uint32_t slot = std::max(first, range.slot_from(block->offset)); slot < end; ++slot)
    visit(range.mapped(slot));
}

inline BestFitHeap& blocks_of(const PageRange& range) {
  return range.heap().heap(range.extent()->pool);
}

}  // namespace tenon
