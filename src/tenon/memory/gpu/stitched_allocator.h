// Physical pages moved to where they are wanted: Tenon's own policy, and its default on a GPU.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tenon/memory/gpu/page_range.h"
#include "tenon/memory/gpu/window.h"
#include "tenon/memory/gpu/stream_ordered_allocator.h"

namespace tenon {

// What `stitched` trades against what.
struct StitchedSettings {
  // How much more than the highest live size may be held before pages are moved instead of created:
  // 0.01 is one per cent. Counted for the streams that one thread uses (Note [Threads apart]).
  double slack = 0.01;
  // The sizes of pages. 0: by the memory there is (Note [Page size]).
  std::uint64_t page_bytes = 0;
  std::uint64_t small_page_bytes = 2 * kMiB;
};

// Blocks are placed by best fit in address ranges that do not run out. Pages of memory back the
// addresses. Pages without a live block move to the addresses of new blocks. So free memory is
// never in the wrong place; what is wasted is the free part of pages in use.
//
// On a miss (grow), it finds the window of free addresses that lacks the fewest pages. For what it
// lacks it takes, in this order: pages whose earlier mapping there still stands, spare pages, new
// ones while slack allows. Then idle ones from elsewhere (the same range, the same stream, other
// streams), and new ones. O(free blocks + pages).
//
// Note [Stale mappings]. A page that moves keeps its old mapping. To undo it would cost as much as
// the new one, and must wait until the stream is done there. Nothing is placed at the old addresses
// while the page is elsewhere. An idle page serves its old addresses again without a driver call.
// An address has one mapping at most, so the addresses bound the page table. Stale mappings are
// undone, once settled, when they stand in the way and when the page's memory is released. Where
// they are not settled, addresses that were never mapped are taken instead: a wait is the last
// resort.
//
// Note [Page size]. Partly used pages waste a few pages, whatever the size of the memory, and
// driver time goes by the number of pages. So pages are small where memory is small: memory / 512,
// rounded down to a power of two, from the driver's granularity up to 16 MiB. Memory is the
// device's, or the allocator's limit if that is less.
//
// Note [Small blocks]. Blocks of up to 1 MiB lie in small pages of their own. The exception: while
// the streams of the thread have held less than 384 large pages, they use free memory of the large
// pages first. So a small program holds less and makes few small pages, each of which costs the
// driver as much time as a large one. In a larger program this saves little, and each small block
// that lives long may keep a large page in use.
//
// Note [Threads apart]. Pages move between the streams of one thread as they do within a stream.
// Threads do not take each other's: two programs that grow and shrink at once would take the same
// pages back and forth, and the addresses of a thread's blocks would depend on the other threads.
// When the driver has no more, or the limit is reached, idle pages go to any thread that wants
// them.
//
// Streams: within one stream a moved page needs no wait, since work on both addresses is in stream
// order. A page that another stream used last is ordered behind that use by an event. Memory is
// never stranded.
class StitchedAllocator final : public StreamOrderedAllocator {
 public:
  // Throws InvalidArgument when the backend has no virtual memory or cannot map a page twice, or
  // when a page is no multiple of its granularity.
  explicit StitchedAllocator(Backend& backend, const StitchedSettings& stitched = {},
                             const CachingSettings& settings = {}, std::uint64_t limit_bytes = 0);
  // Gives all pages and addresses back, whatever is still in use.
  ~StitchedAllocator() override;

  std::string name() const override { return "stitched"; }
  void check_invariants() const override;

 protected:
  bool grow_pool(BlockHeap& heap, Pool pool, std::uint64_t rounded) override;
  bool release_cached() override;
  PoolRules pool_rules(Pool pool) const override;

 private:
  // What the policy keeps for each stream.
  struct StreamState {
    std::unique_ptr<PageRange> ranges[kPools];
    // Most bytes at once in blocks of the streams of its thread, as seen when this one grew
    std::int64_t highest_live = 0;
  };

  PageRange* range_of(BlockHeap& heap, Pool pool);
  std::optional<AddressRange> reserve_range(std::uint64_t page_bytes);
  void note_highest_live(const BlockHeap& heap, std::uint64_t rounded);

  // --- The steps of grow. The heap that grows is locked throughout back_window.
  bool back_window(BlockHeap& heap, Pool pool, std::uint64_t rounded);
  void find_idle(PageRange& range, std::vector<Page*>* idle);
  std::vector<Page*> idle_pages(PageRange& range);
  template <typename Visit>
  void for_each_range(Visit&& visit) const {  // in order of stream id
    for (const auto& [id, stream] : streams_)
      for (const auto& range : stream.ranges)
        if (range != nullptr) visit(*range);
  }
  void readopt(PageRange& range, const Window& window);
  bool fill(PageRange& range, const Window& window);
  Page* obtain(PageRange& range, const Window& window);
  Page* create(const PageRange& range);
  Page* steal(PageRange& range, const Window& window);
  bool release_other_sizes(const PageRange& range);
  enum class Of : bool { kThisThread, kOtherThreads };
  Page* steal_from_other_streams(const PageRange& range, Of whose);
  // Whether it and the heap that grows belong to one thread.
  bool is_own(const BlockHeap& heap) const {
    return &heap == growing_ || heap.is_owned_by_this_thread();
  }
  bool within_slack(std::uint64_t more) const;
  bool holds_few_pages() const;
  std::uint64_t held_by_this_thread() const;
  std::uint64_t page_bytes(Pool pool) const {
    return pool == Pool::kSmall ? stitched_.small_page_bytes : stitched_.page_bytes;
  }

  // --- Pages.
  bool map_at(PageRange& range, Page* page, std::uint32_t slot);
  void move_in(PageRange& range, Page* page, std::uint32_t slot);
  void move_out(Page* page);
  void set_idle_block(PageRange& range, Block* block, std::uint32_t first = 0);
  void undo_mapping(Page* page, Mapping mapping);
  void order_after_last_use(const Page* page, const BlockHeap& heap);
  bool release_idle(std::uint64_t growth);
  void release_page(Page* page);

  const StitchedSettings stitched_;  // page_bytes as chosen
  std::map<std::uint32_t, StreamState> streams_;  // by stream id
  std::vector<std::unique_ptr<Page>> pages_;
  std::vector<Page*> spare_;        // pages without a home, latest last

  std::uint64_t epoch_ = 0;         // number of the growth under way
  const BlockHeap* growing_ = nullptr;
  std::int64_t highest_live_ = 0;   // peak of the bytes in use by the thread that grows
  std::vector<Page*> idle_;         // idle pages it may take, the best first
  std::size_t next_idle_ = 0;
  bool searched_pools_ = false;     // idle_ has those of the stream's other pool too
  IdleCache idle_cache_{*this};     // last
};

}  // namespace tenon
