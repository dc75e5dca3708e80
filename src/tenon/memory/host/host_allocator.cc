#include "tenon/memory/host/host_allocator.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/memory/host/host_thread.h"

namespace tenon {

using host::context_of;
using host::ExtentStore;
using host::heap_of;
using host::Held;
using host::large_block_of;
using host::LocalHeap;
using host::Released;
using host::Slot;
using host::word_of;
namespace word = host::word;

namespace {

Held held(Slot* slot) { return {slot->data, slot, &slot->word, slot->span->block_bytes}; }
Held held(Block* block) {
  return {ExtentStore::address_of(block), context_of(block), word_of(block), block->size};
}

}  // namespace

HostAllocator::HostAllocator(Backend& backend, std::uint64_t limit_bytes)
    : DeviceAllocator(backend),
      id_(HostThread::new_id()),
      limit_bytes_(limit_bytes),
      extent_bytes_(host::extent_bytes(backend.memory().total_bytes)),
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
  HostThread::withdraw(id_);
  decay_thread_.reset();
}

HostAllocator& host_allocator() {
  static auto* const allocator = new HostAllocator(host_backend());
  return *allocator;
}

// --- Allocation.

// The common case: the thread's heap has it in the door. Whatever else there is to do is a tail
// call, so that this much needs no frame.
inline const Held* HostAllocator::take_again(std::uintptr_t word, std::uint64_t key) {
  if (!HostThread::has_own_heap(key)) [[unlikely]] return nullptr;
  LocalHeap& heap = HostThread::own_heap();
  const Held* again = nullptr;
  if (const OwnerGuard guard(heap.lock, KnownOwner{}); guard) [[likely]]
    again = heap.pass_again(word);
  if (again != nullptr) [[likely]] heap.count_pass();
  return again;
}

// The next most common: in a bin.
Held HostAllocator::take(std::uintptr_t word, Stream stream) {
  LocalHeap* heap = HostThread::find_heap(id_, has_streams_ ? stream.id : 0);
  const std::uint64_t size_bytes = word::requested(word);
  if (size_bytes > host::kLargestClass || heap == nullptr) return take_elsewhere(word, stream);
  Held taken;
  if (const OwnerGuard guard(heap->lock); guard && heap->close_empty_door()) [[likely]] {
    Slot* slot = heap->take_at_once(host::size_class_of(size_bytes));
    if (slot != nullptr) [[likely]] {
      taken = held(slot);
      heap->let_out(taken, word);
      if (heap->account.is_due()) [[unlikely]] accounts_.flush(heap->account);
    }
  }
  if (taken.data == nullptr) [[unlikely]] return take_elsewhere(word, stream);
  observers_.report(MemoryEvent::kRecycled, taken.data, size_bytes, stream);
  return taken;
}

// From bins, store and driver; and once more when all that is idle has been given back.
Held HostAllocator::take_elsewhere(std::uintptr_t word, Stream stream) {
  const std::uint64_t size_bytes = word::requested(word);
  LocalHeap& heap = heap_of_this_thread(stream);
  host::ReleaseReport report(observers_);
  bool fresh = false;
  Held taken = try_once(heap, word, Try::kFirst, fresh, report);
  if (taken.data == nullptr) {
    accounts_.change([](AllocatorStats& stats) { ++stats.num_alloc_retries; });
    release_idle(report.released);
    taken = try_once(heap, word, Try::kLast, fresh, report);
  }
  if (taken.data == nullptr && reclaim_for_retry())
    taken = try_once(heap, word, Try::kLast, fresh, report);
  if (HostThread::has_ended()) heaps_.abandon(heap);
  if (decay_thread_ != nullptr) decay_thread_->wake();
  if (taken.data == nullptr) give_up(size_bytes, stream);
  observers_.report(fresh ? MemoryEvent::kAllocated : MemoryEvent::kRecycled, taken.data,
                    size_bytes, stream);
  return taken;
}

// The heap's lock is not held while the store or the driver is asked: others may look at the heap.
// Only this thread adds spans to it.
Held HostAllocator::try_once(LocalHeap& heap, std::uintptr_t word, Try which, bool& fresh,
                             host::ReleaseReport& report) {
  const std::uint64_t size_bytes = word::requested(word);
  const bool is_small = size_bytes <= host::kLargestClass;
  const int size_class = is_small ? host::size_class_of(size_bytes) : 0;
  const auto let_out = [&](const Held& taken) {
    heap.let_out(taken, word);
    if (heap.account.is_due()) accounts_.flush(heap.account);
    return taken;
  };
  {
    const std::lock_guard lock(heap.lock);
    heap.close_door(report.released);
    Slot* slot = is_small ? heap.take(size_class) : nullptr;
    if (slot != nullptr) return let_out(held(slot));
    if (is_small) heap.reserve_span();
  }
  auto span = is_small ? LocalHeap::prepare_span(size_class) : nullptr;
  const std::uint64_t wanted =
      is_small ? host::span_bytes(size_class) : align_up(size_bytes, host::kGrain);
  Block* block = obtain(heap, wanted, which, fresh, report);
  if (block == nullptr) return {};
  const std::lock_guard lock(heap.lock);
  heap.close_door(report.released);
  if (!is_small) {
    block->context = &heap;
    return let_out(held(block));
  }
  heap.add_span(std::move(span), block);
  return let_out(held(heap.take(size_class)));
}

// A piece of the stream's extents: from what there is, what this thread can spare, the driver.
// Null: out of memory. Requires: the caller does not hold the heap's lock.
Block* HostAllocator::obtain(LocalHeap& heap, std::uint64_t size_bytes, Try which, bool& fresh,
                             host::ReleaseReport& report) {
  ExtentStore& store = heap.store();
  if (Block* block = store.take(size_bytes)) return block;
  {
    const std::lock_guard lock(heap.lock);
    heap.trim(report.released);
  }
  if (Block* block = store.take(size_bytes)) return block;
  // A control group that is nearly full may have no memory behind what it allows: what is idle here
  // goes back to it first.
  if (which == Try::kFirst && backend_.memory().free_bytes < size_bytes) return nullptr;
  fresh = true;
  // Half an extent and more gets one of its own, so that no rest stays behind.
  const std::uint64_t usual = size_bytes * 2 >= extent_bytes_ ? 0 : extent_bytes_;
  Block* block = store.grow_and_take(size_bytes, usual);
  if (block == nullptr && which == Try::kLast) block = store.grow_and_take(size_bytes, 0);
  return block;
}

void HostAllocator::give_up(std::size_t size_bytes, Stream stream) {
  accounts_.change([](AllocatorStats& stats) { ++stats.num_ooms; });
  const std::uint64_t total = backend_.total_bytes();
  const std::uint64_t limit = limit_bytes_ == 0 ? total : std::min(limit_bytes_, total);
  throw_out_of_memory(size_bytes, stream, limit,
                      "blocks above 64 KiB need one free piece of an extent: free neighbours, or "
                      "let threads that hold caches end");
}

// --- Frees.

void HostAllocator::drop(void* context) {
  if (Block* block = large_block_of(context))
    drop_large(block);
  else
    drop_small(static_cast<Slot*>(context));
}

void HostAllocator::drop_small(Slot* slot) {
  LocalHeap& heap = *slot->span->heap;
  void* const data = slot->data;
  const std::uint64_t requested = word::requested(slot->word);
  if (const auto guard = heap.enter_as_owner()) [[likely]] {
    if (!heap.come_back(slot)) {
      heap.account.freed(slot->span->block_bytes, static_cast<std::int64_t>(requested));
      heap.put(slot);
      if (heap.account.is_due()) [[unlikely]] accounts_.flush(heap.account);
    }
  } else {
    count_freed(slot->span->block_bytes, requested);
    if (heap.is_callers()) {
      const std::lock_guard lock(heap.lock);
      heap.disturb();
      heap.put(slot);
    } else {
      heap.push_remote(slot);
    }
  }
  observers_.report(MemoryEvent::kFreed, data, requested, heap.store().stream());
}

void HostAllocator::drop_large(Block* block) {
  LocalHeap& heap = heap_of(block);
  void* const data = ExtentStore::address_of(block);
  const std::uint64_t requested = word::requested(*word_of(block));
  bool inside = false;
  if (const auto guard = heap.enter_as_owner()) inside = heap.come_back(context_of(block));
  host::ReleaseReport report(observers_);
  if (!inside) {
    count_freed(block->size, requested);
    heap.disturb();
    release_large(block, report.released);
  }
  observers_.report(MemoryEvent::kFreed, data, requested, heap.store().stream());
}

// For blocks that do not go back through the heap whose account knows them.
void HostAllocator::count_freed(std::uint64_t bytes, std::uint64_t requested) {
  const auto block_bytes = static_cast<std::int64_t>(bytes);
  const auto requested_bytes = static_cast<std::int64_t>(requested);
  LocalHeap* mine = HostThread::last_heap_in(id_);
  if (mine == nullptr) return accounts_.freed(block_bytes, requested_bytes);
  const std::lock_guard lock(mine->lock);
  mine->account.freed(block_bytes, requested_bytes);
  if (mine->account.is_due()) accounts_.flush(mine->account);
}

// What was in the heap's door. Requires: the heap's lock.
void HostAllocator::give_back(LocalHeap& heap, const Held& held, std::vector<Released>& released) {
  if (Block* block = large_block_of(held.context))
    release_large(block, released);
  else
    heap.put(static_cast<Slot*>(held.context));
}

void HostAllocator::release_large(Block* block, std::vector<Released>& released) {
  raw_blocks_.leave(block);
  heap_of(block).store().release(block, released);
}

// --- By DataPtr.

DataPtr HostAllocator::allocate(std::size_t size_bytes) {
  if (size_bytes <= kMaxRequestBytes && observers_.empty()) [[likely]]
    if (const Held* again = take_again(word::make(size_bytes, word::kOwned), streamless_key_))
        [[likely]]
      return DataPtr(again->data, again->context, &free_block, device_);
  return allocate_somewhere(size_bytes);
}

DataPtr HostAllocator::allocate_somewhere(std::size_t size_bytes) {
  return allocate_on(size_bytes, has_streams_ ? current_stream(device_) : Stream{device_, 0});
}

DataPtr HostAllocator::allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  const std::uintptr_t word = word::make(size_bytes, word::kOwned);
  if (observers_.empty()) [[likely]]
    if (const Held* again = take_again(word, key_of(stream))) [[likely]]
      return DataPtr(again->data, again->context, &free_block, device_);
  return allocate_anew(size_bytes, stream);
}

DataPtr HostAllocator::allocate_anew(std::size_t size_bytes, Stream stream) {
  if (size_bytes == 0) return DataPtr(device_);
  const Held taken = take(word::make(size_bytes, word::kOwned), stream);
  return DataPtr(taken.data, taken.context, &free_block, device_);
}

void HostAllocator::free_block(void* context) {
  Block* const block = large_block_of(context);
  LocalHeap& heap = block != nullptr ? heap_of(block) : *static_cast<Slot*>(context)->span->heap;
  HostAllocator& self = heap.store().allocator();
  if (HostThread::is_own_heap(heap) && self.observers_.empty()) [[likely]] {
    const OwnerGuard guard(heap.lock, KnownOwner{});
    if (guard && heap.come_back(context)) [[likely]] return;
  }
  self.drop(context);
}

// --- By bare pointer.

void* HostAllocator::raw_allocate(std::size_t size_bytes) {
  if (size_bytes <= kMaxRequestBytes && observers_.empty()) [[likely]]
    if (const Held* again = take_again(word::make(size_bytes, word::kRaw), streamless_key_))
        [[likely]]
      return again->data;
  return raw_allocate_anew(size_bytes);
}

void* HostAllocator::raw_allocate_anew(std::size_t size_bytes) {
  return raw_allocate_on(size_bytes, has_streams_ ? current_stream(device_) : Stream{device_, 0});
}

void* HostAllocator::raw_allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  if (size_bytes == 0) return nullptr;
  const Held taken = take(word::make(size_bytes, word::kRaw), stream);
  bool is_entered = false;
  try {
    is_entered = raw_blocks_.enter(taken);
  } catch (const std::bad_alloc&) {
    drop(taken.context);
    throw;
  }
  if (is_entered) [[likely]] return taken.data;
  drop(taken.context);
  return DeviceAllocator::raw_allocate_on(size_bytes, stream);
}

void HostAllocator::raw_deallocate(void* data) {
  if (!HostThread::has_own_heap_in(id_) || !observers_.empty()) [[unlikely]]
    return find_and_drop(data);
  bool inside = false;
  if (const OwnerGuard guard(HostThread::own_heap().lock, KnownOwner{}); guard) [[likely]]
    inside = HostThread::own_heap().come_back_raw(data);
  if (!inside) [[unlikely]] find_and_drop(data);
}

void HostAllocator::find_and_drop(void* data) {
  if (void* context = raw_blocks_.find(data)) return drop(context);
  DeviceAllocator::raw_deallocate(data);  // a block that entered no map; or says what is wrong
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
