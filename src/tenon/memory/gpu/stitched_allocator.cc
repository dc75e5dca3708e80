#include "tenon/memory/gpu/stitched_allocator.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/base/reserve.h"

namespace tenon {
namespace {

// Addresses cost nothing but page-table entries where something is mapped; but a process has only
// 128 TiB of them, and every pool of every stream takes a range.
constexpr std::uint64_t kMaxRangeBytes = 8 * kTiB;
constexpr std::uint64_t kRangeTimesMemory = 4;

// Note [Page size]
constexpr std::uint64_t kLeastPages = 512;
constexpr std::uint64_t kLargestPage = 16 * kMiB;

// Note [Small blocks]
constexpr std::uint64_t kFewPages = 384;

StitchedSettings with_page_size(StitchedSettings stitched, const Backend& backend,
                                std::uint64_t limit_bytes) {
  if (stitched.page_bytes != 0) return stitched;
  std::uint64_t memory = backend.memory().total_bytes;
  if (limit_bytes != 0) memory = std::min(memory, limit_bytes);
  const std::uint64_t wanted = std::min(std::bit_floor(memory / kLeastPages), kLargestPage);
  const std::uint64_t granularity = std::max<std::uint64_t>(1, backend.limits().page_granularity);
  stitched.page_bytes = round_up(std::max(wanted, granularity), granularity);
  return stitched;
}

}  // namespace

StitchedAllocator::StitchedAllocator(Backend& backend, const StitchedSettings& stitched,
                                     const CachingSettings& settings, std::uint64_t limit_bytes)
    : StreamOrderedAllocator(backend, settings, limit_bytes),
      stitched_(with_page_size(stitched, backend, limit_bytes)) {
  const BackendLimits& limits = backend.limits();
  if (!limits.has_virtual_memory || !limits.can_map_twice)
    raise<InvalidArgument>("policy stitched needs virtual memory that can be mapped "
                           "twice, which {} lacks; use caching", to_string(backend.device()));
  for (const std::uint64_t bytes : {stitched_.page_bytes, stitched_.small_page_bytes})
    if (bytes == 0 || bytes % limits.page_granularity != 0)
      raise<InvalidArgument>("policy stitched: pages of {} are no multiple of {}'s {}",
                             format_byte_size(bytes), to_string(backend.device()),
                             format_byte_size(limits.page_granularity));
  if (!(stitched.slack >= 0))
    raise<InvalidArgument>("policy stitched: a slack of {} is below 0", stitched.slack);
}

StitchedAllocator::~StitchedAllocator() {
  idle_cache_.end();
  if (!pages_.empty()) ignore_refusal([&] { backend_.synchronize(); });  // then unmap
  for (const auto& page : pages_) {
    for (const Mapping& mapping : page->mappings)
      ignore_refusal([&] {
        backend_.unmap(mapping.slot.range->address_of(mapping.slot.index), page->handle);
      });
    ignore_refusal([&] { backend_.release_pages(page->handle); });
  }
  for_each_range([&](const PageRange& range) {
    ignore_refusal([&] { backend_.release_address(range.addresses()); });
  });
}

PoolRules StitchedAllocator::pool_rules(Pool pool) const {
  PoolRules rules;
  rules.page_bytes = page_bytes(pool);
  rules.spare_tails = false;  // any addresses can be given pages
  rules.borrows_of_large = pool == Pool::kSmall;  // Note [Small blocks]
  return rules;
}

PageRange* StitchedAllocator::range_of(BlockHeap& heap, Pool pool) {
  StreamState& stream = streams_[heap.stream().id];
  auto& range = stream.ranges[static_cast<int>(pool)];
  if (range != nullptr) return range.get();
  const auto addresses = reserve_range(page_bytes(pool));
  if (!addresses) return nullptr;
  const Segment segment{reinterpret_cast<void*>(addresses->base), nullptr, addresses->size_bytes, 0,
                        MemoryKind::kDevice};
  try {
    auto made = std::make_unique<PageRange>(*addresses, page_bytes(pool));
    made->set_extent(&heap.add_extent(segment, segment.size_bytes, pool, true));
    range = std::move(made);
  } catch (...) {
    ignore_refusal([&] { backend_.release_address(*addresses); });
    throw;
  }
  count_segment(pool, +1);
  return range.get();
}

// Several times the memory, so that free addresses in pieces never matter; less where the process
// is short of addresses.
std::optional<AddressRange> StitchedAllocator::reserve_range(std::uint64_t page_bytes) {
  const std::uint64_t memory = std::min(backend_.memory().total_bytes, kMaxRangeBytes);
  std::uint64_t size = std::min(memory * kRangeTimesMemory, kMaxRangeBytes);
  for (; size >= page_bytes; size /= 2)
    if (auto addresses = backend_.reserve_address(round_up(size, page_bytes))) return addresses;
  return std::nullopt;
}

// --- Growth.

bool StitchedAllocator::grow_pool(BlockHeap& heap, Pool pool, std::uint64_t rounded) {
  growing_ = &heap;
  note_highest_live(heap, rounded);
  const std::uint64_t before = epoch_;
  if (back_window(heap, pool, rounded)) return true;
  finish_pending_frees();
  ++device_stats_.num_alloc_retries;
  if (back_window(heap, pool, rounded)) return true;
  release_idle(before + 1);  // pages that did not help
  return false;
}

// Gives pages to the cheapest window. False when memory is short.
bool StitchedAllocator::back_window(BlockHeap& heap, Pool pool, std::uint64_t rounded) {
  const BiasedGuard lock(heap.lock);
  heap.rules(Pool::kSmall).borrows_of_large = holds_few_pages();
  PageRange* range = range_of(heap, pool);
  if (range == nullptr) return false;
  ++epoch_;
  idle_.clear();
  next_idle_ = 0;
  searched_pools_ = false;
  find_idle(*range, &idle_);
  Window window;
  const GrowthView view{epoch_, heap.completion().settled()};
  if (!find_window(*range, blocks_of(*range), rounded, view, &window)) return false;
  readopt(*range, window);
  return fill(*range, window);
}

void StitchedAllocator::note_highest_live(const BlockHeap& heap, std::uint64_t rounded) {
  auto live = static_cast<std::int64_t>(rounded);
  std::int64_t& highest = streams_[heap.stream().id].highest_live;
  for_each_heap<BlockHeap>([&](BlockHeap& each) {
    if (!is_own(each)) return;
    const BiasedGuard lock(each.lock);
    live += each.counters.bytes();
    highest = std::max(highest, streams_[each.stream().id].highest_live);
    if (&each == &heap) highest = std::max(highest, each.counters.peak_bytes());
  });
  highest_live_ = highest = std::max(highest, live);
}

bool StitchedAllocator::within_slack(std::uint64_t more) const {
  return static_cast<double>(held_by_this_thread() + more) <=
         (1 + stitched_.slack) * static_cast<double>(highest_live_);
}

// Note [Small blocks]
bool StitchedAllocator::holds_few_pages() const {
  return static_cast<std::uint64_t>(highest_live_) < kFewPages * stitched_.page_bytes;
}

// Bytes of the pages that belong to its streams, and of those that belong to no stream.
std::uint64_t StitchedAllocator::held_by_this_thread() const {
  std::uint64_t held = 0;
  for (const Page* page : spare_) held += page->handle.size_bytes;
  for_each_range([&](const PageRange& range) {
    if (is_own(range.heap())) held += range.home_bytes();
  });
  return held;
}

// Marks and appends the pages in which no block lives: those in the smallest free blocks first,
// since the large ones are worth more where they are.
void StitchedAllocator::find_idle(PageRange& range, std::vector<Page*>* idle) {
  blocks_of(range).for_each_free([&](Block* block) {
    for_each_page_inside(range, block, 0, [&](Page* page) {
      page->idle_epoch = epoch_;
      page->idle_block = block;
      idle->push_back(page);
    });
  });
}

// The same without marks, for pages whose heap is locked for a moment only.
std::vector<Page*> StitchedAllocator::idle_pages(PageRange& range) {
  std::vector<Page*> idle;
  find_idle(range, &idle);
  for (Page* page : idle) page->idle_epoch = 0;
  return idle;
}

// Brings back the idle pages whose earlier mapping in the window still stands, and undoes the
// mappings of pages that are busy elsewhere.
void StitchedAllocator::readopt(PageRange& range, const Window& window) {
  for (std::uint32_t slot = window.first; slot < window.last; ++slot) {
    Page* page = range.mapped(slot);
    if (page == nullptr || range.is_backed(slot)) continue;
    if (range.mapping(slot).accessible && can_leave(page, epoch_, range, window)) {
      if (page->has_home) move_out(page);
      order_after_last_use(page, range.heap());
      move_in(range, page, slot);
    } else {
      const MovingScope moving(backend_);
      undo_mapping(page, range.mapping(slot));
    }
  }
}

// Gives pages to the slots of the window that have none. False when memory is short; pages given
// until then stay.
bool StitchedAllocator::fill(PageRange& range, const Window& window) {
  for (std::uint32_t slot = window.first; slot < window.last; ++slot) {
    if (range.mapped(slot) != nullptr) continue;
    Page* page = obtain(range, window);
    if (page == nullptr) return false;
    order_after_last_use(page, range.heap());
    if (!map_at(range, page, slot)) return false;
    move_in(range, page, slot);
  }
  return true;
}

// A spare page, made so if need be, or null when memory is short. It stays spare until it moves in,
// so that a driver call which throws in between loses nothing.
Page* StitchedAllocator::obtain(PageRange& range, const Window& window) {
  for (auto it = spare_.rbegin(); it != spare_.rend(); ++it)
    if (range.takes(*it)) return *it;
  Page* page = within_slack(range.page_bytes()) ? create(range) : nullptr;
  if (page == nullptr) page = steal(range, window);
  if (page == nullptr) page = create(range);
  if (page == nullptr) page = steal_from_other_streams(range, Of::kOtherThreads);
  if (page == nullptr && release_other_sizes(range)) page = create(range);
  return page;
}

Page* StitchedAllocator::create(const PageRange& range) {
  if (exceeds_limit(range.page_bytes())) return nullptr;
  auto page = std::make_unique<Page>();
  reserve_more(pages_);
  reserve_more(spare_);
  const auto handle = backend_.create_pages(range.page_bytes());
  if (!handle) return nullptr;
  pages_.push_back(std::move(page));
  pages_.back()->handle = *handle;
  pages_.back()->pool = range.extent()->pool;
  pages_.back()->made = epoch_;
  add_reserved(pages_.back()->pool, static_cast<std::int64_t>(handle->size_bytes));
  spare_.push_back(pages_.back().get());
  return spare_.back();
}

// An idle page of the same range, of the stream's other pool, or of another stream of the thread.
Page* StitchedAllocator::steal(PageRange& range, const Window& window) {
  while (true) {
    for (; next_idle_ < idle_.size(); ++next_idle_) {
      Page* page = idle_[next_idle_];
      if (!page->has_home || !can_leave(page, epoch_, range, window)) continue;
      move_out(page);
      return page;
    }
    if (searched_pools_) return steal_from_other_streams(range, Of::kThisThread);
    searched_pools_ = true;
    for (const auto& other : streams_.at(range.heap().stream().id).ranges)
      if (other != nullptr && other.get() != &range && other->page_bytes() == range.page_bytes())
        find_idle(*other, &idle_);
  }
}

// In order of stream id.
Page* StitchedAllocator::steal_from_other_streams(const PageRange& range, Of whose) {
  for (const auto& [id, stream] : streams_) {
    if (id == range.heap().stream().id) continue;
    for (const auto& other : stream.ranges) {
      if (other == nullptr || other->page_bytes() != range.page_bytes()) continue;
      if (is_own(other->heap()) != (whose == Of::kThisThread)) continue;
      const BiasedGuard lock(other->heap().lock);
      BlockHeap::drain_remote_frees(other->heap());
      const std::vector<Page*> idle = idle_pages(*other);
      if (idle.empty()) continue;
      move_out(idle.front());
      return idle.front();
    }
  }
  return nullptr;
}

// Gives idle pages of other sizes than the range's back to the driver, until a page of its size may
// be made. Returns whether any went.
bool StitchedAllocator::release_other_sizes(const PageRange& range) {
  std::uint64_t released = 0;
  const auto release = [&](Page* page) {
    if (released >= range.page_bytes() || range.takes(page)) return;
    released += page->handle.size_bytes;
    if (page->has_home) move_out(page);
    release_page(page);
  };
  for (Page* page : std::vector<Page*>(spare_)) release(page);
  for_each_range([&](PageRange& other) {
    if (other.page_bytes() == range.page_bytes()) return;
    std::optional<BiasedGuard> lock;
    if (&other.heap() != &range.heap()) lock.emplace(other.heap().lock);
    for (Page* page : idle_pages(other)) release(page);
  });
  return released != 0;
}

void StitchedAllocator::check_invariants() const {
  StreamOrderedAllocator::check_invariants();
  const std::lock_guard growth(growth_mutex_);
  std::uint64_t bytes = 0;
  std::map<const PageRange*, std::uint64_t> homes;
  for (const auto& page : pages_) {
    bytes += page->handle.size_bytes;
    if (page->has_home) ++homes[page->home.slot.range];
    const bool spare = std::find(spare_.begin(), spare_.end(), page.get()) != spare_.end();
    TENON_CHECK(spare != page->has_home, "a page is both spare and at home, or neither");
    for (const Mapping& mapping : page->mappings)
      TENON_CHECK(mapping.slot.range->mapped(mapping.slot.index) == page.get(),
                  "a page and its range disagree about slot {}", mapping.slot.index);
  }
  TENON_CHECK(bytes == reserved_now(), "pages hold {} bytes, reserved are {}", bytes,
              reserved_now());
  for_each_range([&](const PageRange& range) {
    const BiasedGuard lock(range.heap().lock);
    TENON_CHECK(homes[&range] * range.page_bytes() == range.home_bytes(),
                "{} pages live in a range, counted {} bytes", homes[&range], range.home_bytes());
    for (const Block* block : blocks_of(range).unbacked()) {
      const std::uint32_t end =
          std::min(range.slots_used(), range.slot_at(block->offset + block->size));
      for (std::uint32_t slot = range.slot_at(block->offset); slot < end; ++slot)
        TENON_CHECK(!range.is_backed(slot), "slot {} is backed, its block is not", slot);
    }
  });
}

}  // namespace tenon
