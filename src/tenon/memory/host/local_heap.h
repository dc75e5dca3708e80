// The free blocks of one thread (on one stream).
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/biased_lock.h"
#include "tenon/base/reserve.h"
#include "tenon/memory/host/accounts.h"
#include "tenon/memory/host/held.h"
#include "tenon/memory/host/large_cache.h"
#include "tenon/memory/host/raw_blocks.h"
#include "tenon/memory/host/region_store.h"
#include "tenon/memory/host/size_classes.h"

namespace tenon::host {

// Bins of spans, one bin to a size class, that as a rule only the owning thread touches: taking and
// returning a block costs no atomic read-modify-write. Blocks that other threads free wait on one
// list, which the owner drains when a bin has run out.
//
//   bin 576 B:   [span with room] - [span with room]       full spans are in no list
//                  free -> slot -> slot
//
// Large blocks of up to 512 KiB wait in a LargeCache.
//
// Wholly free spans go back to the store by trim: when the thread needs memory that the store has
// not, or on request. When the thread ends the heap is abandoned, and the next thread that needs
// one adopts it.
//
// Thread-safe: push_remote. All else under `lock`.
class LocalHeap {
  RegionStore& store_;  // with `owner`: on the line that other threads read

 public:
  // The thread_mark of the thread whose heap it is; null while there is none.
  std::atomic<const void*> owner{nullptr};

  explicit LocalHeap(RegionStore& store) : store_(store) {}
  ~LocalHeap();  // the spans' memory stays the store's
  LocalHeap(const LocalHeap&) = delete;
  LocalHeap& operator=(const LocalHeap&) = delete;

  RegionStore& store() const { return store_; }

  // --- Fast path: null or false, without effect, where the slow path is needed.
  // A small block of the span in use.
  Held place_small_fast(std::uint64_t size_bytes, std::uintptr_t how) {
    Span* span = bins_[BlockClasses::of(size_bytes)].front();
    if (span == nullptr) [[unlikely]] return {};
    void* const data = span->free;
    if (data == nullptr) [[unlikely]] return {};
    if (!account.count_allocated_fast(span->counts, static_cast<std::uint32_t>(size_bytes)))
        [[unlikely]]
      return {};
    return {data, take_from(span, header::make(size_bytes, how))};
  }
  // `requested` is in the slot's header.
  bool release_small_fast(Slot* slot, Span* span, void* data, std::uint64_t requested) {
    if (!account.count_freed_fast(span->counts, static_cast<std::uint32_t>(requested)))
        [[unlikely]]
      return false;
    put(slot, span, data);
    return true;
  }
  // A large block that waits in the cache.
  Held place_large_fast(std::uint64_t size_bytes, std::uintptr_t how) {
    LargeCache::Set* const set = large_.find(align_up(size_bytes, kGrain));
    if (set == nullptr || (how == header::kRaw && !RawBlocks::is_entered(set->first))) return {};
    if (!account.count_allocated_fast(set->counts, static_cast<std::uint32_t>(size_bytes)))
        [[unlikely]]
      return {};
    void* const data = set->data;
    return {data, context_of(take_from(*set, header::make(size_bytes, how)))};
  }
  bool release_large_fast(Block* block, void* data) {
    LargeCache::Set* const set = large_.find_room(block->size);
    if (set == nullptr) return false;
    const auto requested = static_cast<std::uint32_t>(header::requested(header_of(block)));
    if (!account.count_freed_fast(set->counts, requested)) [[unlikely]] return false;
    large_.push(*set, block, data);
    return true;
  }

  // --- Slow path. The caller counts.
  // A small block, or null: then add_span, and try again.
  Slot* place(std::uintptr_t header) {
    Span* span = find_room(BlockClasses::of(header::requested(header)));
    return span == nullptr ? nullptr : take_from(span, header);
  }
  void put(Slot* slot, Span* span, void* data) {
    if (span->push(slot, data) && !span->listed) [[unlikely]]
      bins_[span->size_class].push_back(span);
  }

  // A large block of the cache, or null.
  Block* place_large(std::uintptr_t header) {
    LargeCache::Set* const set = large_.find(align_up(header::requested(header), kGrain));
    return set == nullptr ? nullptr : take_from(*set, header);
  }
  // A large block goes into the cache, for which others may leave it, or to the store.
  void put_large(Block* block, Released& released);

  // Any thread. Afterwards the caller must not look at the slot.
  void push_remote(Slot* slot);

  // Room for a span to be, so that nothing can fail once there is memory. Throws std::bad_alloc
  // with nothing changed.
  void reserve_span() { reserve_more(spans_); }
  // Requires: there is room, and the span has its memory.
  [[gnu::cold]] void add_span(Span::Pointer span);

  // Gives every wholly free span and all cached blocks back to the store, after the frees by other
  // threads. `released` collects what the store then gives back to the driver. O(free blocks).
  [[gnu::cold]] void trim(Released& released);

  // True when nothing happened since this was asked last, for the first time.
  bool has_become_idle() {
    const std::uint32_t before = std::exchange(operations_when_asked_, account.operations());
    const bool idle = before == account.operations();
    const bool was_idle = std::exchange(was_idle_, idle);
    return idle && (!was_idle || remote_.load(std::memory_order_relaxed) != nullptr);
  }

  // Whether the caller is the thread whose heap it is. Others find out without touching the lock's
  // line, which the owner writes all the time.
  bool is_callers() const { return owner.load(std::memory_order_relaxed) == thread_mark(); }
  // Held for everything but push_remote, and next to free for the owner.
  alignas(64) AppointedLock lock;

  LocalAccount account;  // its first 48 bytes are on the lock's line

  [[gnu::cold]] void check_invariants() const;

 private:
  static Slot* take_from(Span* span, std::uintptr_t header) {
    Slot* slot = span->pop();
    slot->header = header;
    return slot;
  }
  Block* take_from(LargeCache::Set& set, std::uintptr_t header) {
    Block* block = large_.pop(set);
    block->context = this;
    set_header(block, header);
    return block;
  }
  Span* find_room(int size_class);
  static bool link_more(Span* span);
  void drain();
  void release_large(Block* block, Released& released);
  [[gnu::cold]] void release_span(Span* span, Released& released);

  std::uint32_t operations_when_asked_ = 0;
  bool was_idle_ = false;
  LargeCache large_;
  SpanList bins_[kClasses];
  std::vector<Span::Pointer> spans_;  // all, in no order; Span::index says where
  // Other threads write here.
  alignas(64) std::atomic<Slot*> remote_{nullptr};
};

}  // namespace tenon::host
