// Serves blocks at planned offsets, and notices when the program leaves the plan. A request that
// the plan does not have is an empty handle. Lack of memory (std::bad_alloc) is possible when the
// heap is made and when skipped slots are looked through.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/heap/heap.h"
#include "tenon/heap/plan.h"

namespace tenon {

// One slot of the plan, and its handle while in use. `owner`, `context` and `requested` belong to
// the policy.
struct PlanBlock {
  // What is known of a slot's range.
  enum class State : std::uint8_t {
    kFree,     // nothing in use in the range, as far back as its last turn
    kUsed,
    kSkipped,  // its turn passed without it: what lay there before may still be in use
  };

  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  void* owner = nullptr;
  void* context = nullptr;
  std::uint64_t requested = 0;
  std::uint32_t first_below = 0;  // into the heap's list of slots that lie below this one
  State state = State::kFree;
};
static_assert(sizeof(PlanBlock) == 48);

// Why a request was not served.
enum class Divergence : std::uint8_t {
  kNone,
  kWrongSize,  // the plan has another size next
  kOccupied,   // the planned range, or a part of it, is still in use
};

// Hands out a stream's slots in the order of the plan. After the last one comes the first of the
// plan's loop again, so a program may repeat itself any number of times. Each request is checked
// before it is served: its size, and that nothing in its range is in use. A request that fails the
// check gets nothing and changes nothing; the caller serves it elsewhere and may move the cursor
// (seek).
//
// The check is O(1) for a program that keeps to the plan. Below each slot lie the slots that were
// last to use parts of its range, worked out in advance (a sweep over the plan and its loop):
//
//   order of the plan  0 1 2 3 ...          3 lies on 1 and 2: it is free if both are, since
//                      |---1---|--2--|      they were only ever served when what lay below
//                         |----3---|        them was free
//
// A slot that was skipped proves nothing about what lies below it, so the check looks through it.
//
// Invariants (check_invariants):
//   1. No two blocks in use overlap.
//   2. The cursor is at a slot, or behind the last.
//
// place: amortised O(1) while the program keeps to the plan, O(slots skipped) after skipping.
// release: O(1). Questions about what is in use: O(slots), for nothing is counted. Construction
// O(n log n). Not thread-safe.
class PlanHeap {
 public:
  // As the concept Heap asks (heap.h).
  using Handle = PlanBlock*;
  static std::uint64_t offset_of(Handle block) { return block->offset; }
  static std::uint64_t size_of(Handle block) { return block->size; }

  // Requires: the plan has fewer than 2^31 slots.
  [[gnu::cold]] PlanHeap(const StreamPlan& plan, std::uint64_t unit_bytes);
  PlanHeap(const PlanHeap&) = delete;
  PlanHeap& operator=(const PlanHeap&) = delete;

  // The next slot if the request fits the plan, or null: see divergence(). Alignment beyond the
  // plan's unit counts as a wrong size unless the slot has it.
  PlanBlock* place(std::uint64_t size, std::uint64_t alignment = 1);
  // The same where that takes no second look: no turn of the round, nothing skipped. Null, and
  // nothing has changed, says that place() is to be asked. `is_free(block)` says whether nothing in
  // the block's range is in use: is_clear(), or who else knows.
  template <typename IsFree>
  PlanBlock* place_next(std::uint64_t size, IsFree&& is_free) {
    if (cursor_ >= slot_count_) [[unlikely]] return nullptr;
    PlanBlock& block = blocks_[cursor_];
    if (block.size != rounded(size) || !is_free(&block)) [[unlikely]] return nullptr;
    block.state = PlanBlock::State::kUsed;
    ++cursor_;
    return &block;
  }
  // False also where a skipped slot hides the answer.
  bool is_clear(const PlanBlock& block) const {
    const PlanBlock* const slots = blocks_.data();
    if (block.state == PlanBlock::State::kUsed) [[unlikely]] return false;
    for (const std::uint32_t* below = &below_[block.first_below]; *below != kEndOfList; ++below)
      if (slots[*below].state != PlanBlock::State::kFree) [[unlikely]] return false;
    return true;
  }
  // The slot's range is free again. O(1).
  void release(PlanBlock* block) {
    TENON_DCHECK(block->state == PlanBlock::State::kUsed, "released a slot that is not in use");
    block->state = PlanBlock::State::kFree;
  }

  // Why the last place() gave null.
  Divergence divergence() const { return divergence_; }
  // The slot whose turn is next, or slots() when the round is over.
  std::size_t cursor() const { return cursor_; }
  std::size_t slots() const { return blocks_.size(); }
  // Moves the cursor forward to `index`, skipping the slots in between; around the end of the plan
  // where `index` lies behind it. Requires: index <= slots().
  void seek(std::size_t index);
  const PlanBlock& slot(std::size_t index) const { return blocks_[index]; }
  // Gives every block its owner.
  void set_owner(void* owner) {
    for (PlanBlock& block : blocks_) block.owner = owner;
  }
  // The blocks in use, lowest first.
  [[gnu::cold]] std::vector<PlanBlock*> in_use_by_offset() const;

  // What is in use: O(slots).
  [[gnu::cold]] bool any_in_use() const;
  std::uint64_t used_bytes() const;
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::uint64_t free_bytes() const { return size_bytes_ - used_bytes(); }
  // The next slot's size if that may be served now, else 0.
  [[gnu::cold]] std::uint64_t largest_free() const;
  [[gnu::cold]] void check_invariants() const;

 private:
  [[gnu::cold]] void sweep();
  void skip_to(std::size_t index);
  std::uint64_t rounded(std::uint64_t size) const { return align_up(size, unit_bytes_); }
  bool range_is_free(const PlanBlock& block) const;
  bool range_is_free_below_skipped(const PlanBlock& block) const;

  const std::uint64_t unit_bytes_;
  const std::uint64_t size_bytes_;
  const std::size_t loop_begin_;
  std::vector<PlanBlock> blocks_;      // by turn
  // Slots below slots (PlanBlock::first_below), each slot's ended by kEndOfList.
  static constexpr std::uint32_t kEndOfList = ~std::uint32_t{0};
  std::vector<std::uint32_t> below_;
  std::size_t slot_count_ = 0;
  std::size_t cursor_ = 0;
  Divergence divergence_ = Divergence::kNone;
  // Scratch of the slow check.
  mutable std::vector<std::uint32_t> visited_;
  mutable std::vector<std::uint32_t> pending_;
  mutable std::uint32_t visit_ = 0;
};
static_assert(Heap<PlanHeap>);

}  // namespace tenon
