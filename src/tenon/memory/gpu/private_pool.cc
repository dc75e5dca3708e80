#include "tenon/memory/gpu/private_pool.h"

#include "tenon/base/align.h"
#include "tenon/base/reserve.h"

namespace tenon {
namespace {

std::uint64_t segment_bytes(const BackendLimits& limits, Pool pool, std::uint64_t rounded) {
  const std::uint64_t wanted = pool == Pool::kSmall ? kSmallSegment : rounded;
  return round_up(wanted, limits.has_virtual_memory ? limits.page_granularity
                                                    : kSmallSegment);
}

PageHandle pages_of(const Segment& segment) { return {segment.handle, segment.size_bytes}; }

}  // namespace

PrivatePool::PrivatePool(Backend& backend, std::function<void()> on_shortage, Made made,
                         std::uint64_t limit_bytes)
    : StreamOrderedAllocator(backend, {}, limit_bytes),
      on_shortage_(std::move(on_shortage)),
      of_pages_(made == Made::kOfPages && backend.limits().has_virtual_memory) {}

PrivatePool::~PrivatePool() {
  idle_cache_.end();
  free_all_segments();
  give_back_unmapped();
}

bool PrivatePool::grow_pool(BlockHeap& heap, Pool pool, std::uint64_t rounded) {
  const std::uint64_t size = segment_bytes(backend_.limits(), pool, rounded);
  if (exceeds_limit(size)) return false;
  if (add_segment(heap, pool, size)) return true;
  ++device_stats_.num_alloc_retries;
  if (on_shortage_) on_shortage_();
  return add_segment(heap, pool, size);
}

// All or nothing; nothing: memory is short.
std::optional<Segment> PrivatePool::make_segment(std::uint64_t size_bytes) {
  if (!of_pages_) return backend_.allocate_segment(size_bytes);
  reserve_more(unmapped_);  // for a segment that has to be given up again
  const auto range = backend_.reserve_address(size_bytes);
  if (!range) return std::nullopt;
  Segment made{.base = reinterpret_cast<void*>(range->base), .size_bytes = size_bytes};
  bool is_mapped = false;
  const auto undo = [&] {
    if (is_mapped) ignore_refusal([&] { backend_.unmap(range->base, pages_of(made)); });
    unmapped_.push_back(made);
    give_back_unmapped();
  };
  try {
    made.handle = backend_.create_pages(size_bytes).value_or(PageHandle{}).id;
    is_mapped = made.handle != 0 && backend_.map(range->base, pages_of(made));
    if (is_mapped && backend_.set_access(range->base, size_bytes)) return made;
  } catch (...) {
    undo();
    throw;
  }
  undo();
  return std::nullopt;
}

// Throws only before any change. After the unmapping the pool does not have the segment any more;
// if the driver then refuses its memory, the next release tries again.
void PrivatePool::free_segment(const Segment& segment) {
  if (!of_pages_) return backend_.free_segment(segment);
  reserve_more(unmapped_);
  if (may_release_) backend_.synchronize();  // unmapping waits for no stream
  backend_.unmap(reinterpret_cast<std::uintptr_t>(segment.base), pages_of(segment));
  unmapped_.push_back(segment);
  give_back_unmapped();
}

void PrivatePool::give_back_unmapped() {
  std::erase_if(unmapped_, [&](Segment& segment) {
    bool taken = false;
    ignore_refusal([&] {
      if (segment.handle != 0) backend_.release_pages(pages_of(segment));
      segment.handle = 0;
      backend_.release_address({reinterpret_cast<std::uintptr_t>(segment.base),
                                segment.size_bytes});
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
  return StreamOrderedAllocator::release_cached();
}

}  // namespace tenon
