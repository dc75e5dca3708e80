#include "tenon/memory/gpu/private_pool.h"

#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/reserve.h"

namespace tenon {
namespace {

std::uint64_t segment_bytes(const BackendLimits& limits, Pool pool, std::uint64_t rounded) {
  const std::uint64_t wanted = pool == Pool::kSmall ? kSmallSegment : rounded;
  return round_up(wanted, limits.has_virtual_memory ? limits.page_granularity
                                                    : kSmallSegment);
}

}  // namespace

PrivatePool::PrivatePool(Backend& backend, std::function<void()> on_shortage, Made made,
                         const CachingSettings& settings, std::uint64_t limit_bytes)
    : StreamOrderedAllocator(backend, settings, limit_bytes),
      on_shortage_(std::move(on_shortage)),
      of_pages_(made == Made::kOfPages && backend.limits().has_virtual_memory) {}

PrivatePool::~PrivatePool() {
  idle_cache_.end();
  for (const auto& [extent, piece] : pieces_)
    ignore_refusal([&, held = &piece] { release_piece(*held); });
  give_back_unmapped();
}

bool PrivatePool::grow_pool(BlockHeap& heap, Pool pool, std::uint64_t rounded) {
  const std::uint64_t size = segment_bytes(backend_.limits(), pool, rounded);
  if (exceeds_limit(size)) return false;
  reserve_more(unmapped_);  // for a piece that has to be given up again
  auto piece = make_piece(size);
  if (!piece) {
    ++device_stats_.num_alloc_retries;
    if (on_shortage_) on_shortage_();
    piece = make_piece(size);
  }
  if (!piece) return false;
  {
    const BiasedGuard lock(heap.lock);
    Extent* extent = nullptr;
    try {
      extent = heap.add_extent(pool, piece->segment, false);
      pieces_.emplace(extent, *piece);
    } catch (...) {
      if (extent != nullptr) heap.remove_extent(extent);
      ignore_refusal([&] { release_piece(*piece); });
      throw;
    }
  }
  add_reserved(pool, static_cast<std::int64_t>(size));
  count_segment(pool, +1);
  note(MemoryEvent::kMapped, piece->segment.base, size, heap.stream());
  return true;
}

// All or nothing; nothing: memory is short.
std::optional<PrivatePool::Piece> PrivatePool::make_piece(std::uint64_t size_bytes) {
  if (!of_pages_) {
    const auto segment = backend_.allocate_segment(size_bytes);
    if (!segment) return std::nullopt;
    return Piece{*segment, {}};
  }
  const auto range = backend_.reserve_address(size_bytes);
  if (!range) return std::nullopt;
  PageHandle pages;  // id 0 until there are any
  bool mapped = false;
  const auto undo = [&] {
    if (mapped) ignore_refusal([&] { backend_.unmap(range->base, pages); });
    if (pages.id != 0) ignore_refusal([&] { backend_.release_pages(pages); });
    ignore_refusal([&] { backend_.release_address(*range); });
  };
  try {
    pages = backend_.create_pages(size_bytes).value_or(PageHandle{});
    mapped = pages.id != 0 && backend_.map(range->base, pages);
    if (!mapped || !backend_.set_access(range->base, size_bytes)) return undo(), std::nullopt;
  } catch (...) {
    undo();
    throw;
  }
  Segment segment;
  segment.base = reinterpret_cast<void*>(range->base);
  segment.size_bytes = size_bytes;
  return Piece{segment, pages};
}

// Throws only before any change. After the unmapping the pool does not have the piece any more; if
// the driver then refuses its memory, the next release tries again.
void PrivatePool::release_piece(const Piece& piece) {
  if (piece.pages.id == 0) return backend_.free_segment(piece.segment);
  reserve_more(unmapped_);
  backend_.unmap(reinterpret_cast<std::uintptr_t>(piece.segment.base), piece.pages);
  unmapped_.push_back(piece);
  give_back_unmapped();
}

void PrivatePool::give_back_unmapped() {
  std::erase_if(unmapped_, [&](Piece& piece) {
    bool taken = false;
    ignore_refusal([&] {
      if (piece.pages.id != 0) backend_.release_pages(piece.pages);
      piece.pages = {};
      backend_.release_address({reinterpret_cast<std::uintptr_t>(piece.segment.base),
                                piece.segment.size_bytes});
      taken = true;
    });
    return taken;
  });
}

void PrivatePool::allow_release() {
  {
    const std::lock_guard growth(growth_mutex_);
    may_release_ = true;
  }
  empty_cache();
}

void PrivatePool::hold() {
  const std::lock_guard growth(growth_mutex_);
  may_release_ = false;
}

bool PrivatePool::release_cached() {
  if (!may_release_) return false;
  give_back_unmapped();
  finish_pending_frees();
  bool released = false;
  for_each_heap<BlockHeap>([&](BlockHeap& heap) {
    const BiasedGuard lock(heap.lock);
    std::vector<Extent*> free = heap.free_extents(Pool::kLarge);
    for (Extent* extent : heap.free_extents(Pool::kSmall)) free.push_back(extent);
    if (!free.empty()) backend_.synchronize();  // unmapping waits for no stream
    for (Extent* extent : free) {
      const Pool pool = extent->pool;
      release_piece(pieces_.at(extent));
      pieces_.erase(extent);
      const Segment segment = heap.remove_extent(extent);
      add_reserved(pool, -static_cast<std::int64_t>(segment.size_bytes));
      count_segment(pool, -1);
      note(MemoryEvent::kUnmapped, segment.base, segment.size_bytes, heap.stream());
      released = true;
    }
  });
  return released;
}

}  // namespace tenon
