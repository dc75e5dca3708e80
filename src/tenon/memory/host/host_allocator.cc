#include "tenon/memory/host/host_allocator.h"

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/memory/host/host_thread.h"

namespace tenon {

using host::context_of;
using host::RegionStore;
using host::Released;
using host::heap_of;
using host::Held;
using host::large_block_of;
using host::LocalHeap;
using host::Slot;
using host::Span;
namespace header = host::header;

namespace {

Held held(Slot* slot) { return {slot->data, slot}; }

}  // namespace

HostAllocator::HostAllocator(Backend& backend, std::uint64_t limit_bytes)
    : DeviceAllocator(backend),
      id_(HostThread::new_id()),
      limit_bytes_(limit_bytes),
      region_bytes_(host::region_bytes(backend.memory().total_bytes)),
      has_streams_(backend.limits().has_streams),
      key_(HostThread::key_of(id_, 0)),
      stream_mask_(has_streams_ ? ~std::uint32_t{0} : 0),
      streamless_key_(has_streams_ ? ~std::uint64_t{0} : key_),
      heaps_(*this, backend, accounts_, limit_bytes) {
  if (const std::uint64_t idle_ns = backend.limits().idle_ns; idle_ns != 0)
    decay_thread_ = std::make_unique<host::DecayThread>(std::chrono::nanoseconds(idle_ns),
                                                        [this] { return decay(); });
  HostThread::enrol(id_, *this);
}

HostAllocator::~HostAllocator() {
  idle_cache_.end();
  HostThread::withdraw(id_);
  decay_thread_.reset();
}

HostAllocator& host_allocator() {
  static auto* const allocator = new HostAllocator(host_backend());
  return *allocator;
}

// --- Allocation.

// The common cases: the thread's heap has a free block. All else is a tail call, so that this much
// needs no frame.
inline Held HostAllocator::place_small_fast(std::size_t size_bytes, std::uintptr_t how,
                                            std::uint64_t key) {
  if (size_bytes - 1 >= host::kLargestClass || !HostThread::has_own_heap(key) ||
      !observers_.empty()) [[unlikely]]
    return {};
  LocalHeap& heap = HostThread::own_heap();
  const OwnerGuard guard(heap.lock, KnownOwner{});
  return guard ? heap.place_small_fast(size_bytes, how) : Held();
}

inline Held HostAllocator::place_large_fast(std::size_t size_bytes, std::uintptr_t how,
                                            std::uint64_t key) {
  if (!HostThread::has_own_heap(key) || !observers_.empty()) return {};
  LocalHeap& heap = HostThread::own_heap();
  const OwnerGuard guard(heap.lock, KnownOwner{});
  return guard ? heap.place_large_fast(size_bytes, how) : Held();
}

inline Held HostAllocator::place_fast(std::size_t size_bytes, std::uintptr_t how,
                                      std::uint64_t key) {
  const Held taken = place_small_fast(size_bytes, how, key);
  if (taken.data != nullptr || size_bytes > host::LargeCache::kLargestBytes) return taken;
  return place_large_fast(size_bytes, how, key);
}

// From bins, store and driver; and once more when all that is idle has been given back.
Held HostAllocator::take(std::uintptr_t header, Stream stream) {
  const std::uint64_t size_bytes = header::requested(header);
  LocalHeap& heap = heap_of_this_thread(stream);
  Released released(&observers_);
  bool fresh = false;
  Held taken = try_once(heap, header, Try::kFirst, fresh, released);
  if (taken.data == nullptr) {
    accounts_.change([](AllocatorStats& stats) { ++stats.num_alloc_retries; });
    release_idle(released);
    taken = try_once(heap, header, Try::kLast, fresh, released);
  }
  if (taken.data == nullptr && reclaim_for_retry(is_of_driver(size_bytes))) {
    release_idle(released);
    taken = try_once(heap, header, Try::kLast, fresh, released);
  }
  if (HostThread::has_ended()) heaps_.abandon(heap);
  if (decay_thread_ != nullptr) decay_thread_->wake();
  if (taken.data == nullptr) give_up(size_bytes, stream);
  observers_.report(fresh ? MemoryEvent::kAllocated : MemoryEvent::kRecycled, taken.data,
                    size_bytes, stream);
  return taken;
}

// Does not hold the heap's lock during calls of the store or the driver, so other threads may read
// the heap. Only this thread adds spans to it.
Held HostAllocator::try_once(LocalHeap& heap, std::uintptr_t header, Try which, bool& fresh,
                             Released& released) {
  const std::uint64_t size_bytes = header::requested(header);
  const auto count = [&](std::uint64_t block_bytes) {
    heap.account.count_allocated(block_bytes, size_bytes);
  };
  if (size_bytes > host::kLargestClass) {
    if (size_bytes <= host::LargeCache::kLargestBytes) {
      const std::lock_guard lock(heap.lock);
      if (Block* block = heap.place_large(header)) {
        count(block->size);
        return held_large(block, header);
      }
    }
    Block* block = obtain(heap, align_up(size_bytes, host::kGrain), which, fresh, released);
    if (block == nullptr) return {};
    block->context = &heap;
    block->flags = 0;
    host::set_header(block, header);
    const std::lock_guard lock(heap.lock);
    count(block->size);
    return held_large(block, header);
  }
  const int size_class = host::BlockClasses::of(size_bytes);
  {
    const std::lock_guard lock(heap.lock);
    if (Slot* slot = heap.place(header)) {
      count(host::BlockClasses::bytes(size_class));
      return held(slot);
    }
    heap.reserve_span();
  }
  auto span = Span::make(size_class);
  Block* block = obtain(heap, host::span_bytes(size_class), which, fresh, released);
  if (block == nullptr) return {};
  span->block = block;
  span->data = static_cast<char*>(RegionStore::address_of(block));
  if (!raw_blocks_.enter(*span)) raw_key_.store(kNowhere, std::memory_order_relaxed);
  const std::lock_guard lock(heap.lock);
  heap.add_span(std::move(span));
  count(host::BlockClasses::bytes(size_class));
  return held(heap.place(header));
}

Held HostAllocator::held_large(Block* block, std::uintptr_t header) {
  if (header::is_raw(header) && !host::RawBlocks::is_entered(block) && !raw_blocks_.enter(block))
    raw_key_.store(kNowhere, std::memory_order_relaxed);
  return {RegionStore::address_of(block), context_of(block)};
}

// A piece of the stream's regions: from what there is, what this thread can spare, the driver.
// Null: out of memory. Requires: the caller does not hold the heap's lock.
Block* HostAllocator::obtain(LocalHeap& heap, std::uint64_t size_bytes, Try which, bool& fresh,
                             Released& released) {
  RegionStore& store = heap.store();
  if (Block* block = store.take(size_bytes)) return block;
  {
    const std::lock_guard lock(heap.lock);
    heap.trim(released);
  }
  if (Block* block = store.take(size_bytes)) return block;
  // A nearly full control group may not have the memory that its limit allows: idle memory goes
  // back to the system first.
  if (which == Try::kFirst && backend_.memory().free_bytes < size_bytes) return nullptr;
  fresh = true;
  // Half a region and more gets one of its own, so that no rest stays behind.
  const std::uint64_t usual = size_bytes * 2 >= region_bytes_ ? 0 : region_bytes_;
  Block* block = store.grow_and_take(size_bytes, usual);
  if (block == nullptr && which == Try::kLast) block = store.grow_and_take(size_bytes, 0);
  return block;
}

// A region is whole units.
bool HostAllocator::is_of_driver(std::size_t size_bytes) const {
  return limit_bytes_ == 0 ||
         reserved_bytes() + align_up(size_bytes, host::kRegionUnit) <= limit_bytes_;
}

void HostAllocator::give_up(std::size_t size_bytes, Stream stream) {
  accounts_.change([](AllocatorStats& stats) { ++stats.num_ooms; });
  const std::uint64_t total = backend_.total_bytes();
  const std::uint64_t limit = limit_bytes_ == 0 ? total : std::min(limit_bytes_, total);
  throw_out_of_memory(
      size_bytes, stream, limit,
      size_bytes > host::kLargestClass
          ? "blocks above 64 KiB need one free piece of a region: free neighbours, or let threads "
            "that hold caches end"
          : "small blocks are cut from regions of 2 MiB and more: raise the limit, free blocks, or "
            "let threads that hold caches end",
      is_of_driver(size_bytes));
}

// --- Frees.

// The common case: the thread's own block. False, without effect, in all others.
inline bool HostAllocator::release_small_fast(Slot* slot, Span* span, void* data,
                                              std::uintptr_t header) {
  if (!HostThread::is_own_heap(*span->heap) || !observers_.empty()) [[unlikely]] return false;
  LocalHeap& heap = HostThread::own_heap();
  const OwnerGuard guard(heap.lock, KnownOwner{});
  return guard && heap.release_small_fast(slot, span, data, header::requested(header));
}

inline bool HostAllocator::release_large_fast(Block* block, void* data) {
  if (!HostThread::is_own_heap(heap_of(block)) || !observers_.empty()) [[unlikely]] return false;
  LocalHeap& heap = HostThread::own_heap();
  const OwnerGuard guard(heap.lock, KnownOwner{});
  return guard && heap.release_large_fast(block, data);
}

void HostAllocator::free_slow(void* context) {
  if (Block* block = large_block_of(context)) {
    heap_of(block).store().allocator().free_large(block);
  } else {
    auto* slot = static_cast<Slot*>(context);
    slot->span->heap->store().allocator().free_small(slot);
  }
}

void HostAllocator::free_small(Slot* slot) {
  LocalHeap& heap = *slot->span->heap;
  void* const data = slot->data;
  const std::uint64_t requested = header::requested(slot->header);
  if (heap.is_callers()) {
    const std::lock_guard lock(heap.lock);
    heap.account.count_freed(slot->span->block_bytes(), requested);
    heap.put(slot, slot->span, data);
  } else {
    count_freed(slot->span->block_bytes(), requested);
    heap.push_remote(slot);
  }
  observers_.report(MemoryEvent::kFreed, data, requested, heap.store().stream());
}

void HostAllocator::free_large(Block* block) {
  LocalHeap& heap = heap_of(block);
  const Stream stream = heap.store().stream();
  void* const data = RegionStore::address_of(block);
  const std::uint64_t requested = header::requested(host::header_of(block));
  Released released(&observers_);
  if (heap.is_callers()) {
    const std::lock_guard lock(heap.lock);
    heap.account.count_freed(block->size, requested);
    heap.put_large(block, released);
  } else {
    count_freed(block->size, requested);
    raw_blocks_.leave(block);
    heap.store().release(block, released);
  }
  observers_.report(MemoryEvent::kFreed, data, requested, stream);
}

// For blocks that do not go back through the heap whose account knows them.
void HostAllocator::count_freed(std::uint64_t bytes, std::uint64_t requested) {
  LocalHeap* mine = HostThread::last_heap_in(id_);
  if (mine == nullptr) return accounts_.count_freed(bytes, requested);
  const std::lock_guard lock(mine->lock);
  mine->account.count_freed(bytes, requested);
}

// --- By DataPtr.

DataPtr HostAllocator::allocate(std::size_t size_bytes) {
  const Held taken = place_small_fast(size_bytes, header::kOwned, streamless_key_);
  if (taken.data != nullptr) [[likely]]
    return DataPtr(taken.data, taken.context, &free_block, device_);
  return allocate_large(size_bytes);
}

DataPtr HostAllocator::allocate_large(std::size_t size_bytes) {
  const Held taken = place_large_fast(size_bytes, header::kOwned, streamless_key_);
  if (taken.data != nullptr) return DataPtr(taken.data, taken.context, &free_block, device_);
  return DeviceAllocator::allocate(size_bytes);
}

DataPtr HostAllocator::allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  const Held taken = place_fast(size_bytes, header::kOwned, key_of(stream));
  if (taken.data != nullptr) [[likely]]
    return DataPtr(taken.data, taken.context, &free_block, device_);
  return allocate_slow(size_bytes, stream);
}

DataPtr HostAllocator::allocate_slow(std::size_t size_bytes, Stream stream) {
  if (size_bytes == 0) return DataPtr(device_);
  const Held taken = take(header::make(size_bytes, header::kOwned), stream);
  return DataPtr(taken.data, taken.context, &free_block, device_);
}

void HostAllocator::free_block(void* context) {
  if (Block* block = large_block_of(context)) return free_large_block(block);
  auto* slot = static_cast<Slot*>(context);
  Span* span = slot->span;
  HostAllocator& allocator = span->heap->store().allocator();
  if (!allocator.release_small_fast(slot, span, slot->data, slot->header)) [[unlikely]]
    free_slow(context);
}

void HostAllocator::free_large_block(Block* block) {
  HostAllocator& allocator = heap_of(block).store().allocator();
  if (block->size > host::LargeCache::kLargestBytes) return allocator.free_large(block);
  if (!allocator.release_large_fast(block, RegionStore::address_of(block)))
    allocator.free_large(block);
}

// --- By bare pointer.

void* HostAllocator::raw_allocate(std::size_t size_bytes) {
  const Held taken =
      place_small_fast(size_bytes, header::kRaw, raw_key_.load(std::memory_order_relaxed));
  if (taken.data != nullptr) [[likely]] return taken.data;
  return raw_allocate_large(size_bytes);
}

void* HostAllocator::raw_allocate_large(std::size_t size_bytes) {
  const Held taken =
      place_large_fast(size_bytes, header::kRaw, raw_key_.load(std::memory_order_relaxed));
  return taken.data != nullptr ? taken.data : DeviceAllocator::raw_allocate(size_bytes);
}

void* HostAllocator::raw_allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  if (size_bytes == 0) return nullptr;
  if (finds_raw()) {
    Held taken = place_fast(size_bytes, header::kRaw, key_of(stream));
    if (taken.data == nullptr) taken = take(header::make(size_bytes, header::kRaw), stream);
    if (finds_raw()) [[likely]] return taken.data;
    free_slow(taken.context);
  }
  return DeviceAllocator::raw_allocate_on(size_bytes, stream);
}

void HostAllocator::raw_deallocate(void* data) {
  void* const entry = raw_blocks_.entry_of(data);
  // Not the slot's own pointer to its span, which would be known later.
  if (!host::RawBlocks::is_spans(entry)) [[unlikely]]
    return raw_deallocate_large(data, static_cast<Block*>(entry));
  Span* span = host::RawBlocks::span_of(entry);
  Slot* slot = host::RawBlocks::slot_of(data, span);
  if (slot == nullptr || !release_small_fast(slot, span, data, slot->header)) [[unlikely]]
    raw_deallocate_other(data);
}

void HostAllocator::raw_deallocate_large(void* data, Block* entry) {
  Block* block = host::RawBlocks::held_at(data, entry);
  if (block == nullptr || !release_large_fast(block, data)) raw_deallocate_other(data);
}

// What the above has not freed.
void HostAllocator::raw_deallocate_other(void* data) {
  if (Slot* slot = raw_blocks_.find_small(data)) return free_small(slot);
  Block* block = raw_blocks_.find_large(data);
  if (block == nullptr) return DeviceAllocator::raw_deallocate(data);  // in no map, or no block
  free_large(block);
}

// --- Streams.

void HostAllocator::record_stream(const DataPtr& data, Stream stream) {
  if (data == nullptr || !has_streams_) return;
  const Block* large = large_block_of(data.get_context());
  const Stream own = large != nullptr
                         ? heap_of(large).store().stream()
                         : static_cast<const Slot*>(data.get_context())
                               ->span->heap->store()
                               .stream();
  if (stream != own) DeviceAllocator::record_stream(data, stream);
}

// --- Threads and their heaps.

LocalHeap& HostAllocator::heap_of_this_thread(Stream stream) {
  const std::uint32_t key = has_streams_ ? stream.id : 0;
  if (LocalHeap* heap = HostThread::find_heap(id_, key)) [[likely]] return *heap;
  LocalHeap& heap = heaps_.adopt(key, Stream{device_, key});
  try {
    HostThread::keep_heap(id_, key, heap);
  } catch (const std::bad_alloc&) {
    heaps_.abandon(heap);
    throw;
  }
  return heap;
}

}  // namespace tenon
