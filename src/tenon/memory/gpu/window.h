// Where a block that fits nowhere should go, and how much memory that takes.
#pragma once

#include <cstdint>

#include "tenon/heap/best_fit_heap.h"
#include "tenon/memory/gpu/page_range.h"

namespace tenon {

// A place for a block in a run of free addresses, some with pages behind them.
//
//   run:     | free, backed |   unbacked   | free, backed |   unbacked ...
//   window:        [start                     start + size)
//   slots:     |first ...                                last|
struct Window {
  std::uint64_t start = 0;
  std::uint32_t first = 0;  // slots [first, last) cover it
  std::uint32_t last = 0;
  std::uint64_t cost = 0;   // about the pages to be found elsewhere; only to compare
};

// What a search needs to know of the growth it is for.
struct GrowthView {
  std::uint64_t epoch = 0;    // pages with this idle_epoch hold no block
  std::uint64_t settled = 0;  // stale mappings of the stream up to this stamp may be undone
};

// Whether a page may leave its home for the window now: it has none, or no block lives there and
// the home lies outside the window.
inline bool can_leave(const Page* page, std::uint64_t epoch, const PageRange& range,
                      const Window& window) {
  if (!page->has_home) return true;
  if (page->idle_epoch != epoch) return false;
  const Slot& home = page->home.slot;
  return home.range != &range || home.index < window.first || home.index >= window.last;
}

// The cheapest window for `size` bytes: the one that lacks the fewest pages. A stale mapping whose
// page can come back counts little (it needs no driver call), one whose page is elsewhere more (it
// must be undone first), and one that the stream may still be using is a last resort. Ties: the
// lowest address. Windows begin at the begin of a run or at a backed block of it, or end where one
// ends. False when no run is large enough. O(free blocks + slots of the windows looked at).
bool find_window(const PageRange& range, const BestFitHeap& blocks, std::uint64_t size,
                 const GrowthView& view, Window* best);

}  // namespace tenon
