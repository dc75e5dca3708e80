#include "tenon/memory/host/host_allocator.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/memory/host/host_thread.h"

namespace tenon {

using host::ExtentStore;
using host::LocalHeap;
using host::Slot;

namespace {

// The context of a DataPtr is a Slot for small blocks, a Block with this bit set for large ones.
constexpr std::uintptr_t kLargeBit = 1;

Block* large_block_of(void* context) {
  const auto bits = reinterpret_cast<std::uintptr_t>(context);
  return (bits & kLargeBit) == 0 ? nullptr : reinterpret_cast<Block*>(bits - kLargeBit);
}
void* context_of(Block* block) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(block) | kLargeBit);
}

std::int64_t bytes_of(const Slot* slot) {
  return static_cast<std::int64_t>(host::size_class_bytes(slot->span->size_class));
}

}  // namespace

HostAllocator::HostAllocator(Backend& backend, std::uint64_t limit_bytes)
    : DeviceAllocator(backend),
      id_(HostThread::enrol(*this)),
      limit_bytes_(limit_bytes),
      has_streams_(backend.limits().has_streams) {}

HostAllocator::~HostAllocator() { HostThread::withdraw(id_); }

// --- Allocation.

DataPtr HostAllocator::allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  if (size_bytes == 0) return DataPtr(device_);
  LocalHeap& heap = heap_of_this_thread(stream);
  DataPtr data = size_bytes <= host::kLargestClass ? allocate_small(heap, size_bytes)
                                                   : allocate_large(heap, size_bytes);
  if (HostThread::has_ended()) [[unlikely]] abandon(heap);
  if (data == nullptr) [[unlikely]] give_up(size_bytes, stream);
  return data;
}

DataPtr HostAllocator::allocate_small(LocalHeap& heap, std::size_t size_bytes) {
  const int size_class = host::size_class_of(size_bytes);
  Slot* slot = heap.take(size_class, size_bytes);
  bool fresh = false;
  if (slot == nullptr) [[unlikely]] {
    heap.trim_if_asked();
    auto span = LocalHeap::prepare_span(size_class);
    Block* block = obtain(heap, host::span_bytes(size_class), fresh);
    if (block == nullptr) return DataPtr(device_);
    heap.add_span(std::move(span), block);
    slot = heap.take(size_class, size_bytes);
  }
  heap.account.allocated(static_cast<std::int64_t>(host::size_class_bytes(size_class)),
                         static_cast<std::int64_t>(size_bytes));
  if (heap.account.is_due()) [[unlikely]] accounts_.flush(heap.account);
  return finish(heap, slot->data, slot, size_bytes, fresh);
}

DataPtr HostAllocator::allocate_large(LocalHeap& heap, std::size_t size_bytes) {
  bool fresh = false;
  heap.trim_if_asked();
  Block* block = obtain(heap, align_up(size_bytes, host::kGrain), fresh);
  if (block == nullptr) return DataPtr(device_);
  block->requested = size_bytes;
  accounts_.flush(heap.account);
  accounts_.allocated(static_cast<std::int64_t>(block->size),
                      static_cast<std::int64_t>(size_bytes));
  return finish(heap, ExtentStore::address_of(block), context_of(block), size_bytes, fresh);
}

// The DataPtr is made first: should anything below it throw, the block is not lost.
DataPtr HostAllocator::finish(LocalHeap& heap, void* data, void* context, std::size_t size_bytes,
                              bool fresh) {
  DataPtr owned(data, context, &free_block, device_);
  const Stream stream = heap.store().stream();
  if (!heap.released().empty()) [[unlikely]] report_released(heap.released(), stream);
  observers_.report(fresh ? MemoryEvent::kAllocated : MemoryEvent::kRecycled, data, size_bytes,
                    stream);
  return owned;
}

// A piece of the stream's extents: from what there is, what this thread can spare, the driver, and
// the driver again once it has back what nobody uses. Null: out of memory.
Block* HostAllocator::obtain(LocalHeap& heap, std::uint64_t size_bytes, bool& fresh) {
  ExtentStore& store = heap.store();
  if (Block* block = store.take(size_bytes)) return block;
  heap.trim();
  if (Block* block = store.take(size_bytes)) return block;
  fresh = true;
  // Half an extent and more gets one of its own, so that no rest stays behind.
  const std::uint64_t usual = size_bytes * 2 >= host::kExtentBytes ? 0 : host::kExtentBytes;
  if (Block* block = store.grow_and_take(size_bytes, usual)) return block;
  accounts_.change([](AllocatorStats& stats) { ++stats.num_alloc_retries; });
  release_free_extents();
  if (Block* block = store.grow_and_take(size_bytes, usual)) return block;
  return store.grow_and_take(size_bytes, 0);
}

void HostAllocator::give_up(std::size_t size_bytes, Stream stream) {
  accounts_.change([](AllocatorStats& stats) { ++stats.num_ooms; });
  const std::uint64_t total = backend_.memory().total_bytes;
  const std::uint64_t limit = limit_bytes_ == 0 ? total : std::min(limit_bytes_, total);
  throw_out_of_memory(size_bytes, stream, limit,
                      "blocks above 256 KiB need one free piece of an extent: free neighbours, or "
                      "let threads that hold caches end");
}

// --- Frees.

void HostAllocator::free_block(void* context) {
  if (Block* block = large_block_of(context)) {
    static_cast<ExtentStore*>(block->context)->allocator().free_large(block);
    return;
  }
  auto* slot = static_cast<Slot*>(context);
  LocalHeap& heap = *slot->span->heap;
  HostAllocator& self = heap.store().allocator();
  const Stream stream = heap.store().stream();
  void* const data = slot->data;
  const std::uint64_t requested = slot->requested;
  const std::int64_t bytes = bytes_of(slot);
  if (heap.owner.load(std::memory_order_relaxed) == HostThread::mark()) [[likely]] {
    heap.account.freed(bytes, static_cast<std::int64_t>(requested));
    heap.put(slot);
    if (heap.account.is_due()) [[unlikely]] self.accounts_.flush(heap.account);
    if (!heap.released().empty()) [[unlikely]] self.report_released(heap.released(), stream);
  } else {
    if (LocalHeap* mine = HostThread::last_heap_in(self.id_)) {
      mine->account.freed(bytes, static_cast<std::int64_t>(requested));
      if (mine->account.is_due()) self.accounts_.flush(mine->account);
    } else {
      self.accounts_.freed(bytes, static_cast<std::int64_t>(requested));
    }
    heap.push_remote(slot);
  }
  self.observers_.report(MemoryEvent::kFreed, data, requested, stream);
}

void HostAllocator::free_large(Block* block) {
  auto& store = *static_cast<ExtentStore*>(block->context);
  void* const data = ExtentStore::address_of(block);
  const std::uint64_t requested = block->requested;
  accounts_.freed(static_cast<std::int64_t>(block->size), static_cast<std::int64_t>(requested));
  std::vector<Segment> released = store.release(block);
  report_released(released, store.stream());
  observers_.report(MemoryEvent::kFreed, data, requested, store.stream());
}

void HostAllocator::record_stream(const DataPtr& data, Stream stream) {
  if (data == nullptr || !has_streams_) return;
  const Block* large = large_block_of(data.get_context());
  const Stream own = large != nullptr
                         ? static_cast<const ExtentStore*>(large->context)->stream()
                         : static_cast<const Slot*>(data.get_context())
                               ->span->heap->store()
                               .stream();
  if (stream != own) DeviceAllocator::record_stream(data, stream);
}

// --- Memory that nobody uses.

void HostAllocator::empty_cache() {
  HostThread::for_each_heap_in(id_, [this](LocalHeap& heap) {
    heap.trim();
    report_released(heap.released(), heap.store().stream());
  });
  {
    const std::lock_guard lock(mutex_);
    for (const auto& heap : heaps_) {
      if (heap->owner.load(std::memory_order_relaxed) == nullptr)
        heap->trim();
      else
        heap->ask_to_trim();
    }
  }
  release_free_extents();
}

void HostAllocator::release_free_extents() {
  std::vector<ExtentStore*> stores;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& store : stores_)
      if (store != nullptr) stores.push_back(store.get());
  }
  for (ExtentStore* store : stores) {
    std::vector<Segment> released;
    try {
      store->release_free_extents(released);
    } catch (...) {
      report_released(released, store->stream());
      throw;
    }
    report_released(released, store->stream());
  }
}

// By a copy: an observer may allocate, and so release more.
void HostAllocator::report_released(std::vector<Segment>& released, Stream stream) {
  if (released.empty()) return;
  std::vector<Segment> reported;
  reported.swap(released);
  for (const Segment& segment : reported)
    observers_.report(MemoryEvent::kReleased, segment.base, segment.size_bytes, stream);
}

// --- Threads and their heaps.

LocalHeap& HostAllocator::heap_of_this_thread(Stream stream) {
  const std::uint32_t key = has_streams_ ? stream.id : 0;
  if (LocalHeap* heap = HostThread::find_heap(id_, key)) [[likely]] return *heap;
  LocalHeap& heap = *adopt_heap(key, Stream{device_, key});
  HostThread::keep_heap(id_, key, heap);
  return heap;
}

// A heap that a thread left behind, or a new one.
LocalHeap* HostAllocator::adopt_heap(std::uint32_t stream_key, Stream stream) {
  const std::lock_guard lock(mutex_);
  ExtentStore& store = store_for(stream_key, stream);
  LocalHeap* found = nullptr;
  for (const auto& heap : heaps_)
    if (&heap->store() == &store && heap->owner.load(std::memory_order_relaxed) == nullptr) {
      found = heap.get();
      break;
    }
  if (found == nullptr) {
    heaps_.push_back(std::make_unique<LocalHeap>(store));
    found = heaps_.back().get();
  }
  found->owner.store(HostThread::mark(), std::memory_order_relaxed);
  return found;
}

ExtentStore& HostAllocator::store_for(std::uint32_t stream_key, Stream stream) {
  if (stores_.size() <= stream_key) stores_.resize(stream_key + 1);
  if (stores_[stream_key] == nullptr)
    stores_[stream_key] =
        std::make_unique<ExtentStore>(*this, backend_, accounts_, limit_bytes_, stream);
  return *stores_[stream_key];
}

// The calling thread, the heap's owner, will not use it again. Whoever adopts it reports what it
// released: here a lock of the thread directory may be held.
void HostAllocator::abandon(LocalHeap& heap) {
  heap.trim();
  accounts_.flush(heap.account);
  const std::lock_guard lock(mutex_);
  heap.owner.store(nullptr, std::memory_order_relaxed);
}

// --- Questions.

AllocatorStats HostAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return accounts_.sum([this](auto&& visit) {
    for (const auto& heap : heaps_) visit(heap->account);
  });
}

void HostAllocator::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  accounts_.reset_peaks([this](auto&& visit) {
    for (const auto& heap : heaps_) visit(heap->account);
  });
}

std::uint64_t HostAllocator::largest_free_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t largest = 0;
  for (const auto& store : stores_)
    if (store != nullptr) largest = std::max(largest, store->largest_free_bytes());
  return largest;
}

std::uint64_t HostAllocator::layout_offset(const DataPtr& data) const {
  if (const Block* block = large_block_of(data.get_context())) return block->offset;
  const auto* slot = static_cast<const Slot*>(data.get_context());
  return slot->span->block->offset +
         static_cast<std::uint64_t>(static_cast<char*>(slot->data) - slot->span->data);
}

void HostAllocator::check_invariants() const {
  const std::lock_guard lock(mutex_);
  for (const auto& store : stores_)
    if (store != nullptr) store->check_invariants();
  for (const auto& heap : heaps_) {
    const void* owner = heap->owner.load(std::memory_order_relaxed);
    if (owner == nullptr || owner == HostThread::mark()) heap->check_invariants();
  }
}

}  // namespace tenon
