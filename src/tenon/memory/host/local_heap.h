// The small blocks of one thread (on one stream).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "tenon/memory/host/accounts.h"
#include "tenon/memory/host/extent_store.h"
#include "tenon/memory/host/size_classes.h"
#include "tenon/memory/host/span.h"

namespace tenon::host {

// Bins of spans, one bin to a size class, that only the owning thread touches: taking and returning
// a block costs no lock and no atomic read-modify-write. Blocks that other threads free wait on one
// list, which the owner drains when a bin has run out.
//
//   bin 576 B:   [span with room] - [span with room]       full spans are in no list
//                  free -> slot -> slot
//
// A span that becomes wholly free goes back to the store, unless it is its bin's last with room.
// When the thread ends the heap is abandoned, and the next thread that needs one adopts it.
//
// Thread-safe: push_remote, ask_to_trim and `account` for reading. All else: the owner's alone.
class LocalHeap {
 public:
  explicit LocalHeap(ExtentStore& store) : store_(store) {}
  ~LocalHeap();  // the spans' memory stays the store's
  LocalHeap(const LocalHeap&) = delete;
  LocalHeap& operator=(const LocalHeap&) = delete;

  ExtentStore& store() const { return store_; }

  // A block of the class, or null: then add_span, and try again.
  Slot* take(int size_class, std::uint64_t requested) {
    Span* span = bins_[size_class].front();
    if (span == nullptr || span->free == nullptr) [[unlikely]] {
      span = find_room(size_class);
      if (span == nullptr) return nullptr;
    }
    Slot* slot = span->free;
    span->free = slot->next;
    ++span->used;
    slot->requested = requested;
    return slot;
  }

  // The owner's frees.
  void put(Slot* slot) {
    Span* span = slot->span;
    slot->next = span->free;
    span->free = slot;
    if (--span->used == 0 || !span->listed) [[unlikely]] notice_room(span);
  }

  // Anybody's. Afterwards the slot is not the caller's to look at.
  void push_remote(Slot* slot);

  // A record for a span to be, without memory yet; so that nothing can fail once there is memory.
  static std::unique_ptr<Span> prepare_span(int size_class);
  void add_span(std::unique_ptr<Span> span, Block* block);

  // Gives every wholly free span back to the store. Other threads' frees count from now on.
  void trim();
  // Anybody may ask the owner to trim when it next looks for memory.
  void ask_to_trim() { trim_asked_.store(true, std::memory_order_relaxed); }
  void trim_if_asked() {
    if (trim_asked_.load(std::memory_order_relaxed)) trim();
  }

  // Extents that the store gave back to the driver meanwhile: the allocator reports them once the
  // operation is over.
  std::vector<Segment>& released() { return released_; }

  // Null while no thread owns the heap.
  std::atomic<const void*> owner{nullptr};
  LocalAccount account;

  void check_invariants() const;

 private:
  Span* find_room(int size_class);
  static bool link_more(Span* span);
  void notice_room(Span* span);
  void drain();
  void release_span(Span* span);

  ExtentStore& store_;
  std::array<SpanList, kClasses> bins_;
  std::vector<std::unique_ptr<Span>> spans_;  // all, in no order; Span::index says where
  std::vector<Segment> released_;
  std::atomic<bool> trim_asked_{false};
  alignas(64) std::atomic<Slot*> remote_{nullptr};
};

}  // namespace tenon::host
