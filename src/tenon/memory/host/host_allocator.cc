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
using host::Held;
using host::LocalHeap;
using host::Released;
using host::Slot;
using host::Span;
namespace word = host::word;

namespace {

// The context of a DataPtr is a Slot for small blocks, a Block with this bit set for large ones.
constexpr std::uintptr_t kLargeBit = 1;

Block* large_block_of(const void* context) {
  const auto bits = reinterpret_cast<std::uintptr_t>(context);
  return (bits & kLargeBit) == 0 ? nullptr : reinterpret_cast<Block*>(bits - kLargeBit);
}
void* context_of(Block* block) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(block) | kLargeBit);
}
LocalHeap& heap_of(const Block* block) { return *static_cast<LocalHeap*>(block->context); }

// A used large block has its word where others have a link.
static_assert(sizeof(Block::link) == sizeof(std::uintptr_t));
std::uintptr_t* word_of(Block* block) { return reinterpret_cast<std::uintptr_t*>(&block->link); }

// By its bare pointer. `word` is its record's.
bool is_held(const void* data, std::uintptr_t word, const LocalHeap& heap) {
  return word::is_raw(word) && !heap.is_inside(data, word);
}

Held held(Slot* slot) { return {slot->data, slot, &slot->word, slot->span->block_bytes}; }
Held held(Block* block) {
  return {ExtentStore::address_of(block), context_of(block), word_of(block), block->size};
}

}  // namespace

HostAllocator::HostAllocator(Backend& backend, std::uint64_t limit_bytes)
    : DeviceAllocator(backend),
      id_(HostThread::enrol(*this)),
      limit_bytes_(limit_bytes),
      extent_bytes_(host::extent_bytes(backend.memory().total_bytes)),
      has_streams_(backend.limits().has_streams),
      key_(HostThread::key_of(id_, 0)),
      stream_mask_(has_streams_ ? ~std::uint32_t{0} : 0),
      streamless_key_(has_streams_ ? ~std::uint64_t{0} : key_) {
  if (const std::uint64_t idle_ns = backend.limits().idle_ns; idle_ns != 0)
    decay_thread_ = std::make_unique<host::DecayThread>(std::chrono::nanoseconds(idle_ns),
                                                        [this] { return decay(); });
}

HostAllocator::~HostAllocator() {
  decay_thread_.reset();
  HostThread::withdraw(id_);
}

// Tells the observers what went back to the driver: at its end, when no lock is held any more, and
// also when the driver has refused something in between.
class HostAllocator::ReleaseReport {
 public:
  explicit ReleaseReport(ObserverList& observers) : observers_(observers) {}
  ~ReleaseReport() {
    for (const auto& [segment, stream] : released)
      observers_.report(MemoryEvent::kReleased, segment.base, segment.size_bytes, stream);
  }
  ReleaseReport(const ReleaseReport&) = delete;
  ReleaseReport& operator=(const ReleaseReport&) = delete;

  std::vector<Released> released;

 private:
  ObserverList& observers_;
};

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

// From bins, store and driver; and once more when all that nobody uses has been given back.
Held HostAllocator::take_elsewhere(std::uintptr_t word, Stream stream) {
  const std::uint64_t size_bytes = word::requested(word);
  LocalHeap& heap = heap_of_this_thread(stream);
  ReleaseReport report(observers_);
  bool fresh = false;
  const auto try_once = [&](Try which) -> Held {
    const std::lock_guard lock(heap.lock);
    heap.close_door(report.released);
    Held taken;
    if (size_bytes <= host::kLargestClass) {
      if (Slot* slot = find_small(heap, host::size_class_of(size_bytes), which, fresh, report))
        taken = held(slot);
    } else if (Block* block =
                   obtain(heap, align_up(size_bytes, host::kGrain), which, fresh, report)) {
      block->context = &heap;
      taken = held(block);
    }
    if (taken.data != nullptr) heap.let_out(taken, word);
    if (heap.account.is_due()) accounts_.flush(heap.account);
    return taken;
  };
  Held taken = try_once(Try::kFirst);
  if (taken.data == nullptr) {
    accounts_.change([](AllocatorStats& stats) { ++stats.num_alloc_retries; });
    release_idle(report.released);
    taken = try_once(Try::kLast);
  }
  if (HostThread::has_ended()) abandon(heap);
  if (decay_thread_ != nullptr) decay_thread_->wake();
  if (taken.data == nullptr) give_up(size_bytes, stream);
  observers_.report(fresh ? MemoryEvent::kAllocated : MemoryEvent::kRecycled, taken.data,
                    size_bytes, stream);
  return taken;
}

Slot* HostAllocator::find_small(LocalHeap& heap, int size_class, Try which, bool& fresh,
                                ReleaseReport& report) {
  if (Slot* slot = heap.take(size_class)) return slot;
  auto span = LocalHeap::prepare_span(size_class);
  Block* block = obtain(heap, host::span_bytes(size_class), which, fresh, report);
  if (block == nullptr) return nullptr;
  heap.add_span(std::move(span), block);
  return heap.take(size_class);
}

// A piece of the stream's extents: from what there is, what this thread can spare, the driver.
// Null: out of memory. Requires: the heap's lock.
Block* HostAllocator::obtain(LocalHeap& heap, std::uint64_t size_bytes, Try which, bool& fresh,
                             ReleaseReport& report) {
  ExtentStore& store = heap.store();
  if (Block* block = store.take(size_bytes)) return block;
  heap.trim(report.released);
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
  ReleaseReport report(observers_);
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
  leave_map(block);
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
  if (!enter_map(taken)) [[unlikely]] {
    drop(taken.context);
    return DeviceAllocator::raw_allocate_on(size_bytes, stream);
  }
  return taken.data;
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
  void* const entry = pages_.get(data);
  if (Block* block = large_block_of(entry)) {
    if (ExtentStore::address_of(block) == data && is_held(data, *word_of(block), heap_of(block)))
      return drop_large(block);
  } else if (entry != nullptr) {
    auto* span = static_cast<Span*>(entry);
    Slot* slot = span->slot_at(data);
    if (slot != nullptr && is_held(data, slot->word, *span->heap)) return drop_small(slot);
  }
  DeviceAllocator::raw_deallocate(data);  // a block that entered no map; or says what is wrong
}

// So that raw_deallocate finds the block. False when its span does not consist of whole entries;
// large blocks are longer than an entry's reach, so no two begin in one.
bool HostAllocator::enter_map(const Held& held) {
  constexpr std::uint64_t kEntry = PageMap<void>::kPageBytes;
  if (large_block_of(held.context) != nullptr) {
    if (pages_.get(held.data) != held.context) pages_.set(held.data, held.context);
    return true;
  }
  Span& span = *static_cast<Slot*>(held.context)->span;
  if (span.mapped) [[likely]] return true;
  if (!is_aligned(reinterpret_cast<std::uintptr_t>(span.data), kEntry)) return false;
  for (std::uint64_t at = 0; at < span.block->size; at += kEntry) pages_.set(span.data + at, &span);
  span.mapped = true;
  return true;
}

void HostAllocator::leave_map(Span& span) {
  if (!span.mapped) return;
  for (std::uint64_t at = 0; at < span.block->size; at += PageMap<void>::kPageBytes)
    pages_.set(span.data + at, nullptr);
}

void HostAllocator::leave_map(Block* block) {
  void* const data = ExtentStore::address_of(block);
  if (pages_.get(data) == context_of(block)) pages_.set(data, nullptr);
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

// --- Memory that nobody uses.

void HostAllocator::empty_cache() {
  ReleaseReport report(observers_);
  release_idle(report.released);
}

std::uint64_t HostAllocator::trim() {
  empty_cache();
  return backend_.trim();
}

// What no block is in goes back: from the heaps of all threads to their stores, and from there to
// the driver. Requires: the caller holds no heap's lock. Throws DeviceError when the driver refuses
// an extent; the rest then stays.
void HostAllocator::release_idle(std::vector<Released>& released) {
  const auto [heaps, stores] = parts();
  for (LocalHeap* heap : heaps) {
    const std::lock_guard lock(heap->lock);
    heap->trim(released);
  }
  for (ExtentStore* store : stores) {
    store->release_free_extents(released);
    store->purge();
  }
}

// One look around of the decay thread. Returns whether another one is needed.
bool HostAllocator::decay() {
  ReleaseReport report(observers_);
  const auto [heaps, stores] = parts();
  for (LocalHeap* heap : heaps) {
    const std::lock_guard lock(heap->lock);
    if (heap->has_been_idle()) heap->trim(report.released);
  }
  for (ExtentStore* store : stores) store->decay(report.released);
  const bool more = backend_.release_idle();
  return reserved_bytes() != 0 || more;
}

// All there are now. They live as long as the allocator.
HostAllocator::Parts HostAllocator::parts() const {
  const std::lock_guard lock(mutex_);
  Parts all;
  for (const auto& heap : heaps_) all.heaps.push_back(heap.get());
  for (const auto& store : stores_)
    if (store != nullptr) all.stores.push_back(store.get());
  return all;
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
    if (heaps_.size() > 1)
      for (const auto& heap : heaps_) heap->account.begin_to_tell();
  }
  const std::lock_guard heap_lock(found->lock);
  found->lock.become_owner();
  found->owner.store(thread_mark(), std::memory_order_relaxed);
  return found;
}

ExtentStore& HostAllocator::store_for(std::uint32_t stream_key, Stream stream) {
  if (stores_.size() <= stream_key) stores_.resize(stream_key + 1);
  if (stores_[stream_key] == nullptr)
    stores_[stream_key] =
        std::make_unique<ExtentStore>(*this, backend_, accounts_, limit_bytes_, stream);
  return *stores_[stream_key];
}

// The calling thread, the heap's owner, will not use it again. What goes back to the driver here is
// not reported: a lock of the thread directory may be held.
void HostAllocator::abandon(LocalHeap& heap) {
  std::vector<Released> unreported;
  {
    const std::lock_guard lock(heap.lock);
    heap.trim(unreported);
    accounts_.flush(heap.account);
  }
  heap.lock.resign();
  const std::lock_guard lock(mutex_);
  heap.owner.store(nullptr, std::memory_order_relaxed);
}

// --- fork(2): every lock is held while it happens, in the usual order.

void HostAllocator::before_fork() {
  if (decay_thread_ != nullptr) decay_thread_->before_fork();
  mutex_.lock();
  for (const auto& heap : heaps_) heap->lock.lock();
  for (const auto& store : stores_)
    if (store != nullptr) store->before_fork();
  accounts_.before_fork();
}

void HostAllocator::unlock_after_fork() {
  accounts_.after_fork();
  for (const auto& store : stores_)
    if (store != nullptr) store->after_fork();
  for (const auto& heap : heaps_) heap->lock.unlock();
  mutex_.unlock();
}

void HostAllocator::after_fork_in_parent() {
  unlock_after_fork();
  if (decay_thread_ != nullptr) decay_thread_->after_fork_in_parent();
}

// Only the calling thread is left.
void HostAllocator::after_fork_in_child() {
  for (const auto& heap : heaps_) {
    if (heap->owner.load(std::memory_order_relaxed) == thread_mark()) continue;
    heap->owner.store(nullptr, std::memory_order_relaxed);
    heap->lock.forget_owner();
  }
  unlock_after_fork();
  if (decay_thread_ != nullptr) decay_thread_->after_fork_in_child();
}

// --- Questions.

AllocatorStats HostAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  std::int64_t blocks = 0;  // that wait in doors: free, although no account says so
  std::int64_t bytes = 0;
  std::int64_t requested = 0;
  for (const auto& heap : heaps_) {
    const std::lock_guard heap_lock(heap->lock);
    heap->settle_door();
    accounts_.flush(heap->account);
    if (const Held* inside = heap->inside_door()) {
      blocks += 1;
      bytes += static_cast<std::int64_t>(inside->block_bytes);
      requested += static_cast<std::int64_t>(heap->requested_by_door());
    }
  }
  return accounts_.stats_without(blocks, bytes, requested);
}

void HostAllocator::reset_peak_stats() {
  ReleaseReport report(observers_);
  const std::lock_guard lock(mutex_);
  for (const auto& heap : heaps_) {
    const std::lock_guard heap_lock(heap->lock);
    heap->close_door(report.released);
    accounts_.flush(heap->account);
  }
  accounts_.change([](AllocatorStats& stats) { reset_peaks(stats); });
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
    const std::lock_guard heap_lock(heap->lock);
    heap->check_invariants();
  }
}

}  // namespace tenon
