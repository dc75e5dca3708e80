// The small blocks of one thread (on one stream).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tenon/base/biased_lock.h"
#include "tenon/base/reserve.h"
#include "tenon/memory/host/accounts.h"
#include "tenon/memory/host/extent_store.h"
#include "tenon/memory/host/held.h"
#include "tenon/memory/host/size_classes.h"

namespace tenon::host {

// Bins of spans, one bin to a size class, that as a rule only the owning thread touches: taking and
// returning a block costs no atomic read-modify-write. Blocks that other threads free wait on one
// list, which the owner drains when a bin has run out.
//
//   bin 576 B:   [span with room] - [span with room]       full spans are in no list
//                  free -> slot -> slot
//
// Wholly free spans go back to the store by trim: when the thread needs memory that the store has
// not, or on request. When the thread ends the heap is abandoned, and the next thread that needs
// one adopts it.
//
// Note [the revolving door]: a temporary is made and dropped, and the next one has the same size.
// The block that the thread allocated last, of whatever size, stays in the door when it is dropped,
// and a request for the very same bytes takes it from there: no bin, no map, and no account, since
// between the two nothing has changed. To the span or store, and in the account, the block is in
// use all the while; any access to either closes the door first, and so does any other request.
// A block that another thread frees does not come back: it disturbs the heap first, and the door
// does not trust what it remembers until it lets out the next block.
//
// Note [one line]: all that a pass through the door writes is on the lock's line of the cache. A
// processor hands its stores to the cache in order, and one to another line than the one before
// takes three times as long (0.85 ns instead of 0.26, AMD EPYC): with its word in the record too a
// pair took 7.2 ns instead of 4.3. So the record of a block that is held by its bare pointer says
// once that the block may be waiting in the door (kRawDoor), and from then on a question looks
// there (is_inside). And passes are counted when the lock is free again: a sum that needs what was
// written the last time holds up the stores behind it (5.6 instead of 4.3 ns inside).
//
// Thread-safe: disturb and push_remote. All else under `lock`.
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

  // --- The door.
  // The block inside, if it was asked for by this very word; or null.
  const Held* pass_again(std::uintptr_t word) {
    if (waiting_.load(std::memory_order_relaxed) != word) [[unlikely]] return nullptr;
    waiting_.store(word::kFree, std::memory_order_relaxed);
    return &door_;
  }
  // To be called for each such block, by the owner, who need not hold the lock: a look at the
  // account in between misses this one pass.
  void count_pass() {
    passed_.store(passed_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // A used block is dropped: true when it is the one that came out of the door, and now is inside.
  bool come_back(const void* context) {
    if (context != door_.context) [[unlikely]] return false;
    return come_back_in();
  }
  // The same for one that is held by its bare pointer.
  bool come_back_raw(const void* data) {
    if (data != raw_data_.load(std::memory_order_relaxed)) [[unlikely]] return false;
    return come_back_in();
  }
  // A block that is allocated now, which may come back. Requires: the door is closed.
  void let_out(const Held& held, std::uintptr_t word) {
    *held.word = word;
    door_ = held;
    door_word_ = word;
    unmarked_ = word::is_raw(word);
    raw_data_.store(word::is_raw(word) ? held.data : this, std::memory_order_relaxed);
    touched_ = true;
    disturbed_.store(false, std::memory_order_relaxed);
    account.allocated(static_cast<std::int64_t>(held.block_bytes),
                      static_cast<std::int64_t>(word::requested(word)));
  }
  // Any thread: whether a block of this heap with that word waits in the door, so that no caller
  // holds it. False for each block that a caller holds.
  bool is_inside(const void* data, std::uintptr_t word) const {
    return word::may_wait(word) && waiting_.load(std::memory_order_acquire) != word::kFree &&
           raw_data_.load(std::memory_order_relaxed) == data;
  }
  // Tells the account what passed.
  void settle_door() {
    const std::int64_t passed = passed_.load(std::memory_order_relaxed);
    if (passed == settled_) return;
    account.passed(passed - std::exchange(settled_, passed),
                   static_cast<std::int64_t>(door_.block_bytes),
                   static_cast<std::int64_t>(requested_by_door()));
  }
  const Held* inside_door() const { return is_empty() ? nullptr : &door_; }
  std::uint64_t requested_by_door() const { return word::requested(door_word_); }
  // The block inside, if any, becomes free. `released` collects what the store then gives back.
  void close_door(std::vector<Released>& released);
  // Does what close_door does when nothing is inside; false when something is.
  bool close_empty_door() {
    if (!is_empty()) [[unlikely]] return false;
    settle_door();
    return true;
  }

  // --- Small blocks.
  // A block of the class from the span in use, or null.
  Slot* take_at_once(int size_class) {
    Span* span = bins_[size_class].front();
    if (span == nullptr || span->free == nullptr) [[unlikely]] return nullptr;
    return take_from(span);
  }
  // A block of the class, or null: then add_span, and try again.
  Slot* take(int size_class) {
    Span* span = find_room(size_class);
    return span == nullptr ? nullptr : take_from(span);
  }
  void put(Slot* slot) {
    Span* span = slot->span;
    slot->set_next(span->free);
    span->free = slot;
    --span->used;
    if (!span->listed) [[unlikely]] bins_[span->size_class].push_back(span);
  }

  // Any thread: a block of this heap is about to be freed past it. What the door says of the block
  // that it let out may then be of another one at the same place.
  void disturb() { disturbed_.store(true, std::memory_order_relaxed); }
  // Any thread. Afterwards the caller must not look at the slot.
  void push_remote(Slot* slot);

  // Room and a record for a span to be, without memory yet, so that nothing can fail once there is
  // memory. Both throw std::bad_alloc with nothing changed.
  void reserve_span() { reserve_more(spans_); }
  static std::unique_ptr<Span> prepare_span(int size_class);
  // Requires: there is room.
  void add_span(std::unique_ptr<Span> span, Block* block);

  // Closes the door and gives every wholly free span back to the store. Other threads' frees count
  // from now on. `released` collects what the store then gives back to the driver.
  void trim(std::vector<Released>& released);

  // True when nothing was allocated since this was asked last.
  bool has_been_idle() {
    const std::int64_t passed = passed_.load(std::memory_order_relaxed);
    return !std::exchange(touched_, false) && std::exchange(passed_when_asked_, passed) == passed;
  }

  // Holds the lock if the caller is the thread whose heap it is. Others find out without touching
  // the lock's line, which the owner writes all the time.
  bool is_callers() const { return owner.load(std::memory_order_relaxed) == thread_mark(); }
  OwnerGuard<AppointedLock> enter_as_owner() {
    return is_callers() ? OwnerGuard(lock) : OwnerGuard<AppointedLock>();
  }
  // Held for everything but push_remote, and next to free for the owner.
  alignas(64) AppointedLock lock;

 private:  // on the lock's line: Note [one line]
  std::atomic<std::uintptr_t> waiting_{word::kFree};  // door_word_ while the block is inside
  std::atomic<std::int64_t> passed_{0};         // times that it was let out again; the owner's
  std::uintptr_t door_word_ = word::kFree;      // what it was asked for by
  // Its data, if it is held by that alone; else this, which is no block (null may be freed).
  std::atomic<const void*> raw_data_{this};
  bool unmarked_ = false;                       // its record does not say that it may wait here
  Held door_;                                   // the block let out last; it may be gone

 public:
  LocalAccount account;

  void check_invariants() const;

 private:
  bool is_empty() const { return waiting_.load(std::memory_order_relaxed) == word::kFree; }
  bool come_back_in() {
    if (!is_empty() || disturbed_.load(std::memory_order_relaxed)) [[unlikely]] return false;
    if (unmarked_) [[unlikely]] {
      *door_.word = word::make(word::requested(door_word_), word::kRawDoor);
      unmarked_ = false;
    }
    waiting_.store(door_word_, std::memory_order_release);  // after raw_data_, for is_inside
    return true;
  }
  static Slot* take_from(Span* span) {
    Slot* slot = span->free;
    span->free = slot->next();
    ++span->used;
    return slot;
  }
  Span* find_room(int size_class);
  static bool link_more(Span* span);
  void drain();
  void release_span(Span* span, std::vector<Released>& released);

  std::int64_t settled_ = 0;                // what the account knows of passed_
  std::int64_t passed_when_asked_ = 0;
  bool touched_ = false;                    // let something out since it was asked
  std::array<SpanList, kClasses> bins_;
  std::vector<std::unique_ptr<Span>> spans_;  // all, in no order; Span::index says where
  // Other threads write here.
  alignas(64) std::atomic<bool> disturbed_{false};
  std::atomic<Slot*> remote_{nullptr};
};

}  // namespace tenon::host
