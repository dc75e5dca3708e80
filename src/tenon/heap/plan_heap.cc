#include "tenon/heap/plan_heap.h"

#include <algorithm>
#include <map>

#include "tenon/base/align.h"
#include "tenon/base/check.h"

namespace tenon {
namespace {

// Which slot used each part of the memory last. Keys are where a part begins; it ends where the
// next one begins.
class LastUsers {
 public:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};

  explicit LastUsers(std::uint64_t size_bytes) { parts_[0] = kNobody; end_ = size_bytes; }

  // Visits the last users of the range, lowest first, and makes `slot` its last user.
  template <typename Visit>
  void cover(const PlanBlock& block, std::uint32_t slot, Visit&& visit) {
    cut(block.offset);
    cut(block.offset + block.size);
    auto part = parts_.find(block.offset);
    const auto stop = parts_.find(block.offset + block.size);
    for (auto p = part; p != stop; ++p)
      if (p->second != kNobody) visit(p->second);
    part->second = slot;
    parts_.erase(std::next(part), stop);
  }

 private:
  void cut(std::uint64_t offset) {
    if (offset >= end_) return;
    const auto above = parts_.upper_bound(offset);
    parts_.emplace(offset, std::prev(above)->second);
  }

  std::map<std::uint64_t, std::uint32_t> parts_;
  std::uint64_t end_ = 0;
};

bool overlap(const PlanBlock& a, const PlanBlock& b) {
  return a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

}  // namespace

PlanHeap::PlanHeap(const StreamPlan& plan, std::uint64_t unit_bytes)
    : unit_bytes_(unit_bytes), size_bytes_(plan.size_bytes), loop_begin_(plan.loop_begin) {
  TENON_CHECK(plan.slots.size() < (std::size_t{1} << 31), "{} slots are too many",
              plan.slots.size());
  blocks_.resize(plan.slots.size());
  slot_count_ = blocks_.size();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].offset = plan.slots[i].offset;
    blocks_[i].size = plan.slots[i].size;
  }
  sweep();
}

// Sweeps all orders in which slots may follow each other: the plan from its start, a repeated loop,
// and the plan from its start again. One list for each slot covers all orders: it has the slots
// below it in any of them, and slots of a later round are not in use in an earlier one. For the
// restarted plan, only slots that the round before left are added.
void PlanHeap::sweep() {
  LastUsers users(size_bytes_);
  const auto count = static_cast<std::uint32_t>(blocks_.size());
  for (std::uint32_t i = 0; i < count; ++i) users.cover(blocks_[i], i, [](std::uint32_t) {});
  std::vector<std::pair<std::uint32_t, std::uint32_t>> in_loop;  // slot, and one below it
  if (loop_begin_ != 0)
    for (auto i = static_cast<std::uint32_t>(loop_begin_); i < count; ++i)
      users.cover(blocks_[i], i, [&](std::uint32_t slot) { in_loop.push_back({i, slot}); });
  below_.reserve(2 * static_cast<std::size_t>(count));
  auto next = in_loop.begin();
  std::vector<std::uint32_t> below;
  for (std::uint32_t i = 0; i < count; ++i) {
    below.clear();
    users.cover(blocks_[i], i, [&](std::uint32_t slot) { below.push_back(slot); });
    for (; next != in_loop.end() && next->first == i; ++next) below.push_back(next->second);
    std::sort(below.begin(), below.end());
    below.erase(std::unique(below.begin(), below.end()), below.end());
    std::erase(below, i);
    blocks_[i].first_below = static_cast<std::uint32_t>(below_.size());
    below_.insert(below_.end(), below.begin(), below.end());
    below_.push_back(kEndOfList);
  }
}

PlanBlock* PlanHeap::place(std::uint64_t size, std::uint64_t alignment) {
  if (blocks_.empty()) {
    divergence_ = Divergence::kWrongSize;
    return nullptr;
  }
  if (cursor_ == blocks_.size()) cursor_ = loop_begin_;
  PlanBlock& block = blocks_[cursor_];
  if (block.size != rounded(size) || !is_aligned(block.offset, alignment)) {
    divergence_ = Divergence::kWrongSize;
    return nullptr;
  }
  if (!range_is_free(block)) {
    divergence_ = Divergence::kOccupied;
    return nullptr;
  }
  divergence_ = Divergence::kNone;
  block.state = PlanBlock::State::kUsed;
  ++cursor_;
  return &block;
}

void PlanHeap::seek(std::size_t index) {
  TENON_CHECK(index <= blocks_.size(), "seek to {} of {} slots", index, blocks_.size());
  if (index < cursor_) {
    skip_to(blocks_.size());
    cursor_ = index < loop_begin_ ? 0 : loop_begin_;
  }
  skip_to(index);
}

void PlanHeap::skip_to(std::size_t index) {
  // A block that is in use says more than a skipped one: it keeps its state.
  for (; cursor_ < index; ++cursor_)
    if (blocks_[cursor_].state == PlanBlock::State::kFree)
      blocks_[cursor_].state = PlanBlock::State::kSkipped;
}

std::uint64_t PlanHeap::largest_free() const {
  if (blocks_.empty()) return 0;
  const PlanBlock& next = blocks_[cursor_ == blocks_.size() ? loop_begin_ : cursor_];
  return range_is_free(next) ? next.size : 0;
}

bool PlanHeap::range_is_free(const PlanBlock& block) const {
  if (block.state == PlanBlock::State::kUsed) return false;
  bool skipped = false;
  for (const std::uint32_t* below = &below_[block.first_below]; *below != kEndOfList; ++below) {
    const PlanBlock::State state = blocks_[*below].state;
    if (state == PlanBlock::State::kUsed) return false;
    skipped |= state == PlanBlock::State::kSkipped;
  }
  return !skipped || range_is_free_below_skipped(block);
}

// Follows skipped slots down to those that had their turn. The search ends, for it visits no slot
// twice, even where a whole round was skipped.
bool PlanHeap::range_is_free_below_skipped(const PlanBlock& block) const {
  visited_.resize(blocks_.size());
  if (++visit_ == 0) {
    std::fill(visited_.begin(), visited_.end(), 0);
    visit_ = 1;
  }
  pending_.assign(1, static_cast<std::uint32_t>(&block - blocks_.data()));
  while (!pending_.empty()) {
    const PlanBlock& at = blocks_[pending_.back()];
    pending_.pop_back();
    for (const std::uint32_t* below = &below_[at.first_below]; *below != kEndOfList; ++below) {
      const std::uint32_t slot = *below;
      const PlanBlock& lower = blocks_[slot];
      if (visited_[slot] == visit_ || !overlap(lower, block)) continue;
      visited_[slot] = visit_;
      if (lower.state == PlanBlock::State::kUsed) return false;
      if (lower.state == PlanBlock::State::kSkipped) pending_.push_back(slot);
    }
  }
  return true;
}

std::vector<PlanBlock*> PlanHeap::in_use_by_offset() const {
  std::vector<PlanBlock*> used;
  for (const PlanBlock& block : blocks_)
    if (block.state == PlanBlock::State::kUsed) used.push_back(const_cast<PlanBlock*>(&block));
  std::sort(used.begin(), used.end(),
            [](const PlanBlock* a, const PlanBlock* b) { return a->offset < b->offset; });
  return used;
}

bool PlanHeap::any_in_use() const {
  return std::any_of(blocks_.begin(), blocks_.end(), [](const PlanBlock& block) {
    return block.state == PlanBlock::State::kUsed;
  });
}

std::uint64_t PlanHeap::used_bytes() const {
  std::uint64_t sum = 0;
  for (const PlanBlock& block : blocks_)
    if (block.state == PlanBlock::State::kUsed) sum += block.size;
  return sum;
}

void PlanHeap::check_invariants() const {
  const std::vector<PlanBlock*> used = in_use_by_offset();
  for (std::size_t i = 1; i < used.size(); ++i)
    TENON_CHECK(used[i - 1]->offset + used[i - 1]->size <= used[i]->offset,
                "blocks at {} and {} overlap (1)", used[i - 1]->offset, used[i]->offset);
  TENON_CHECK(cursor_ <= blocks_.size(), "the cursor is at {} of {} slots (2)", cursor_,
              blocks_.size());
}

}  // namespace tenon
