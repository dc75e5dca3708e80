#include "tenon/memory/gpu/window.h"

#include <limits>

namespace tenon {
namespace {

// Costs of a slot, in twentieths of a page. An order of preference: kReadopt may be anything well
// below a page, kUndoWait anything above the pages of a window.
constexpr std::uint64_t kFresh = 20;        // more, where nothing was mapped: blocks would spread
constexpr std::uint64_t kNew = 20;          // a page is needed
constexpr std::uint64_t kReadopt = 1;       // its page comes back
constexpr std::uint64_t kUndo = 35;         // a page is needed, and a mapping undone
constexpr std::uint64_t kUndoWait = 5120;   // ... after a wait for the stream

class Search {
 public:
  Search(const PageRange& range, std::uint64_t size, const GrowthView& view, Window* best)
      : range_(range), size_(size), view_(view), best_(best) {
    best_->cost = std::numeric_limits<std::uint64_t>::max();
  }

  // All windows worth looking at in the run that begins with `begin`.
  void look_at_run(const Block* begin) {
    std::uint64_t end = 0;
    for (const Block* block = begin; is_free(block); block = block->next)
      end = block->offset + block->size;
    if (end - begin->offset < size_) return;
    for (const Block* block = begin; is_free(block); block = block->next) {
      const bool backed = block->state == Block::State::kFree;
      if ((backed || block == begin) && block->offset + size_ <= end) consider(block->offset);
      const std::uint64_t block_end = block->offset + block->size;
      if (backed && block_end >= begin->offset + size_) {
        // Ending where this block ends: begins inside unbacked addresses, at a slot.
        const std::uint32_t slot = range_.slot_at(block_end - size_);
        const std::uint64_t start = range_.address_of(slot);
        if (start >= begin->offset && start < block->offset && !range_.is_backed(slot))
          consider(start);
      }
    }
    // Where nothing was ever mapped: no mapping is in the way there.
    const std::uint64_t fresh = range_.address_of(range_.slots_used());
    if (fresh > begin->offset && fresh + size_ <= end) consider(fresh, kFresh);
  }

 private:
  void consider(std::uint64_t start, std::uint64_t extra = 0) {
    Window window{start, range_.slot_at(start), range_.slot_from(start + size_), 0};
    ++visit_;
    for (std::uint32_t slot = window.first; slot < window.last; ++slot) {
      window.cost += extra + cost_of(slot, window);
      if (window.cost >= best_->cost) return;
    }
    *best_ = window;
  }

  std::uint64_t cost_of(std::uint32_t slot, const Window& window) {
    Page* page = range_.mapped(slot);
    if (page == nullptr) return kNew;
    if (range_.is_backed(slot)) return 0;
    const bool first_time = page->seen != visit_stamp();
    page->seen = visit_stamp();
    if (first_time && can_leave(page, view_.epoch, range_, window)) return kReadopt;
    return range_.mapping(slot).stamp <= view_.settled ? kUndo : kUndoWait;
  }

  // Unique over all searches: epochs grow, and no search looks at 2^32 windows.
  std::uint64_t visit_stamp() const { return (view_.epoch << 32) + visit_; }

  const PageRange& range_;
  const std::uint64_t size_;
  const GrowthView& view_;
  Window* best_;
  std::uint64_t visit_ = 0;
};

}  // namespace

bool find_window(const PageRange& range, const BestFitHeap& blocks, std::uint64_t size,
                 const GrowthView& view, Window* best) {
  Search search(range, size, view, best);
  std::uint64_t looked_up_to = 0;  // runs that begin below have been looked at
  for (const Block* unbacked : blocks.unbacked()) {
    if (unbacked->offset < looked_up_to) continue;
    const Block* begin = unbacked;
    while (is_free(begin->prev)) begin = begin->prev;
    search.look_at_run(begin);
    const Block* end = unbacked;
    while (is_free(end)) {
      looked_up_to = end->offset + end->size;
      end = end->next;
    }
  }
  return best->cost < std::numeric_limits<std::uint64_t>::max();
}

}  // namespace tenon
