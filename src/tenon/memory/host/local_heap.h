// The small blocks of one thread (on one stream).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tenon/base/biased_lock.h"
#include "tenon/memory/host/accounts.h"
#include "tenon/memory/host/extent_store.h"
#include "tenon/memory/host/size_classes.h"
#include "tenon/memory/host/span.h"

namespace tenon::host {

// A block as its user holds it, small or large.
struct Held {
  void* data = nullptr;
  void* context = nullptr;          // of a DataPtr
  std::uintptr_t* word = nullptr;   // the record's, see Word
  std::uint64_t block_bytes = 0;
};

// What a block's record says of its use, in one word.
//   free:  a multiple of 4 (often a pointer to the next free record)
//   used:  the bytes asked for, times 4, and how it is held
namespace word {
inline constexpr std::uintptr_t kFree = 0;
inline constexpr std::uintptr_t kOwned = 1;  // by a DataPtr
inline constexpr std::uintptr_t kRaw = 3;    // by its bare pointer
constexpr std::uintptr_t make(std::uint64_t requested, std::uintptr_t how) {
  return requested << 2 | how;
}
constexpr std::uint64_t requested(std::uintptr_t word) { return word >> 2; }
constexpr bool is_raw(std::uintptr_t word) { return (word & 3) == kRaw; }
}  // namespace word

// Bins of spans, one bin to a size class, that as a rule only the owning thread touches: taking and
// returning a block costs no atomic read-modify-write. Blocks that other threads free wait on one
// list, which the owner drains when a bin has run out.
//
//   bin 576 B:   [span with room] - [span with room]       full spans are in no list
//                  free -> slot -> slot
//
// Wholly free spans go back to the store by trim: when the thread needs memory that the store has
// not, or somebody asks. When the thread ends the heap is abandoned, and the next thread that needs
// one adopts it.
//
// Note [the revolving door]: a temporary is made and dropped, and the next one has the same size.
// The block that the thread allocated last, of whatever size, stays in the door when it is dropped,
// and a request for the very same bytes takes it from there: no bin, no map, and no account, since
// between the two nothing has changed. To the span or store, and in the account, the block is in
// use all the while; whoever looks at either closes the door first. Any other request closes it.
// A block that another thread frees does not come back: it disturbs the heap first, and the door
// does not trust what it remembers until it lets out the next block.
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
    if (waiting_ != word) [[unlikely]] return nullptr;
    waiting_ = word::kFree;
    *door_.word = word;
    ++passed_;
    return &door_;
  }
  // A used block is dropped: true when it is the one that came out of the door, and now is inside.
  bool come_back(const void* context) { return context == door_.context && come_back_in(); }
  // The same for one that is held by its bare pointer.
  bool come_back_raw(const void* data) {
    return data == raw_data_ && come_back_in();
  }
  // A block that is allocated now, which may come back. Requires: the door is closed.
  void let_out(const Held& held, std::uintptr_t word) {
    *held.word = word;
    door_ = held;
    door_word_ = word;
    raw_data_ = word::is_raw(word) ? held.data : nullptr;
    touched_ = true;
    disturbed_.store(false, std::memory_order_relaxed);
    account.allocated(static_cast<std::int64_t>(held.block_bytes),
                      static_cast<std::int64_t>(word::requested(word)));
  }
  // Tells the account what passed.
  void settle_door() {
    if (passed_ == 0) return;
    account.passed(std::exchange(passed_, 0), static_cast<std::int64_t>(door_.block_bytes),
                   static_cast<std::int64_t>(requested_by_door()));
  }
  const Held* inside_door() const { return waiting_ == word::kFree ? nullptr : &door_; }
  std::uint64_t requested_by_door() const { return word::requested(door_word_); }
  // The block inside, if any, becomes free. `released` collects what the store then gives back.
  void close_door(std::vector<Released>& released);
  // Does what close_door does when nothing is inside; false when something is.
  bool close_empty_door() {
    if (waiting_ != word::kFree) [[unlikely]] return false;
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

  // Anybody's: a block of this heap is about to be freed past it. What the door says of the block
  // that it let out may then be of another one at the same place.
  void disturb() { disturbed_.store(true, std::memory_order_relaxed); }
  // Anybody's. Afterwards the slot is not the caller's to look at.
  void push_remote(Slot* slot);

  // A record for a span to be, without memory yet; so that nothing can fail once there is memory.
  static std::unique_ptr<Span> prepare_span(int size_class);
  void add_span(std::unique_ptr<Span> span, Block* block);

  // Closes the door and gives every wholly free span back to the store. Other threads' frees count
  // from now on. `released` collects what the store then gives back to the driver.
  void trim(std::vector<Released>& released);

  // True when nothing was allocated since this was asked last.
  bool has_been_idle() {
    const bool idle = !touched_ && passed_ == passed_when_asked_;
    touched_ = false;
    passed_when_asked_ = passed_;
    return idle;
  }

  // The caller is the thread whose heap it is, and holds the lock now. Others find out without
  // touching the lock's line, which the owner writes all the time.
  bool try_lock_as_owner() {
    return owner.load(std::memory_order_relaxed) == thread_mark() && lock.try_lock_as_owner();
  }
  // Held for everything but push_remote, and next to free for the owner.
  alignas(64) BiasedLock lock{BiasedLock::Owner::kAppointed};
  LocalAccount account;

  void check_invariants() const;

 private:
  bool come_back_in() {
    if (waiting_ != word::kFree || disturbed_.load(std::memory_order_relaxed)) [[unlikely]]
      return false;
    *door_.word = word::kFree;
    waiting_ = door_word_;
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

  Held door_;                               // the block that was let out last; it may be gone
  std::uintptr_t door_word_ = word::kFree;  // what it was asked for by
  std::uintptr_t waiting_ = word::kFree;    // the same while it is inside
  void* raw_data_ = nullptr;                // its data, if it is held by that alone
  std::int64_t passed_ = 0;                 // times that the account was not told of
  std::int64_t passed_when_asked_ = 0;
  bool touched_ = false;                    // let something out since it was asked
  std::array<SpanList, kClasses> bins_;
  std::vector<std::unique_ptr<Span>> spans_;  // all, in no order; Span::index says where
  // Other threads write here.
  alignas(64) std::atomic<bool> disturbed_{false};
  std::atomic<Slot*> remote_{nullptr};
};

}  // namespace tenon::host
