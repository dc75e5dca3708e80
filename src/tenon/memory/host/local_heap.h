// The free blocks of one thread (on one stream).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/biased_lock.h"
#include "tenon/base/reserve.h"
#include "tenon/memory/host/accounts.h"
#include "tenon/memory/host/extent_store.h"
#include "tenon/memory/host/held.h"
#include "tenon/memory/host/large_cache.h"
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
  ExtentStore& store_;  // with `owner`: on the line that other threads read

 public:
  // The thread_mark of the thread whose heap it is; null while there is none.
  std::atomic<const void*> owner{nullptr};

  explicit LocalHeap(ExtentStore& store) : store_(store) {}
  ~LocalHeap();  // the spans' memory stays the store's
  LocalHeap(const LocalHeap&) = delete;
  LocalHeap& operator=(const LocalHeap&) = delete;

  ExtentStore& store() const { return store_; }

  // --- Fast path: null or false, without effect, where the slow path is needed.
  // A small block of the span in use.
  Slot* place_small_fast(std::uint64_t size_bytes, std::uintptr_t how) {
    Span* span = bins_[look_up_size_class(size_bytes)].front();
    if (span == nullptr || span->free == nullptr) [[unlikely]] return nullptr;
    if (!account.count_allocated_fast(span->block_bytes, size_bytes)) [[unlikely]] return nullptr;
    return take_from(span, header::make(size_bytes, how));
  }
  bool release_small_fast(Slot* slot, Span* span) {
    if (!account.count_freed_fast(span->block_bytes, header::requested(slot->header))) [[unlikely]]
      return false;
    put(slot, span);
    return true;
  }
  // A large block that waits in the cache.
  Held place_large_fast(std::uint64_t size_bytes, std::uintptr_t how) {
    const std::uint64_t block_bytes = align_up(size_bytes, kGrain);
    if (large_.top(block_bytes) == nullptr) return {};
    if (!account.count_allocated_fast(block_bytes, size_bytes)) [[unlikely]] return {};
    Block* block = large_.pop(block_bytes);
    set_header(block, header::make(size_bytes, how));
    return {ExtentStore::address_of(block), context_of(block)};
  }
  bool release_large_fast(Block* block) {
    const std::uint64_t bytes = block->size;
    if (bytes > LargeCache::kLargestBytes || !large_.has_room(bytes)) return false;
    if (!account.count_freed_fast(bytes, header::requested(header_of(block)))) return false;
    large_.push(block, bytes);
    return true;
  }

  // --- Slow path. The caller counts.
  // A small block, or null: then add_span, and try again.
  Slot* place(std::uintptr_t header) {
    Span* span = find_room(size_class_of(header::requested(header)));
    return span == nullptr ? nullptr : take_from(span, header);
  }
  void put(Slot* slot, Span* span) {
    slot->set_next(span->free);
    span->free = slot;
    ++span->returned;
    if (!span->listed) [[unlikely]] bins_[span->size_class].push_back(span);
  }

  // A large block of the cache, or null.
  Block* place_large(std::uintptr_t header) {
    const std::uint64_t block_bytes = align_up(header::requested(header), kGrain);
    if (large_.top(block_bytes) == nullptr) return nullptr;
    Block* block = large_.pop(block_bytes);
    set_header(block, header);
    return block;
  }
  // A large block goes into the cache, for which others may leave it, or to the store.
  void put_large(Block* block, std::vector<Released>& released);

  // Any thread. Afterwards the caller must not look at the slot.
  void push_remote(Slot* slot);

  // Room and a record for a span to be, without memory yet, so that nothing can fail once there is
  // memory. Both throw std::bad_alloc with nothing changed.
  void reserve_span() { reserve_more(spans_); }
  static std::unique_ptr<Span> prepare_span(int size_class);
  // Requires: there is room.
  void add_span(std::unique_ptr<Span> span, Block* block);

  // Gives every wholly free span and all cached blocks back to the store, after the frees by other
  // threads. `released` collects what the store then gives back to the driver.
  void trim(std::vector<Released>& released);

  // True when nothing was allocated since this was asked last.
  bool has_been_idle() {
    const std::int64_t before = std::exchange(allocations_when_asked_, account.allocations());
    return before == account.allocations();
  }

  // Holds the lock if the caller is the thread whose heap it is. Others find out without touching
  // the lock's line, which the owner writes all the time.
  bool is_callers() const { return owner.load(std::memory_order_relaxed) == thread_mark(); }
  OwnerGuard<AppointedLock> enter_as_owner() {
    return is_callers() ? OwnerGuard(lock) : OwnerGuard<AppointedLock>();
  }
  // Held for everything but push_remote, and next to free for the owner.
  alignas(64) AppointedLock lock;

  LocalAccount account;  // its first 48 bytes are on the lock's line

  [[gnu::cold]] void check_invariants() const;

 private:
  static Slot* take_from(Span* span, std::uintptr_t header) {
    Slot* slot = span->free;
    span->free = slot->next();
    ++span->taken;
    slot->header = header;
    return slot;
  }
  Span* find_room(int size_class);
  static bool link_more(Span* span);
  void drain();
  void release_large(Block* block, std::vector<Released>& released);
  void release_span(Span* span, std::vector<Released>& released);

  std::int64_t allocations_when_asked_ = 0;
  LargeCache large_;
  SpanList bins_[kClasses];
  std::vector<std::unique_ptr<Span>> spans_;  // all, in no order; Span::index says where
  // Other threads write here.
  alignas(64) std::atomic<Slot*> remote_{nullptr};
};

}  // namespace tenon::host
