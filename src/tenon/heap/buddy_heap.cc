#include "tenon/heap/buddy_heap.h"

#include <algorithm>
#include <bit>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/base/reserve.h"

namespace tenon {
namespace {

int log2_of(std::uint64_t power) { return std::countr_zero(power); }

}  // namespace

BuddyHeap::BuddyHeap(std::uint64_t min_block_bytes) : min_order_(log2_of(min_block_bytes)) {
  TENON_CHECK(is_power_of_two(min_block_bytes), "a minimum block of {} bytes is no power of two",
              min_block_bytes);
}

BuddyBlock* BuddyHeap::add_extent(std::uint64_t offset, std::uint64_t size) {
  TENON_CHECK(is_power_of_two(size) && size >= min_block_bytes(),
              "an extent of {} bytes is no power of two of at least {}", size, min_block_bytes());
  reserve_more(roots_);
  BuddyBlock* root = roots_slab_.create();
  root->offset = offset;
  root->order = static_cast<std::uint64_t>(log2_of(size));
  roots_.push_back(root);
  push(root);
  return root;
}

void BuddyHeap::remove_extent(BuddyBlock* root) {
  TENON_CHECK(root->parent == nullptr && is_wholly_free(root),
              "only a wholly free extent can be removed");
  unlink(root);
  roots_.erase(std::find(roots_.begin(), roots_.end(), root));
  roots_slab_.destroy(root);
}

BuddyBlock* BuddyHeap::place(std::uint64_t size, std::uint64_t alignment) {
  const int order = order_for(size, alignment);
  if (order > 63) return nullptr;
  const std::uint64_t fitting = mask_ & (~std::uint64_t{0} << order);
  if (fitting == 0) return nullptr;
  BuddyBlock* block = free_[std::countr_zero(fitting)];
  halves_.reserve(block->order - static_cast<std::uint64_t>(order));  // the last that may throw
  unlink(block);
  while (block->order > static_cast<std::uint64_t>(order)) {
    split(block);
    block = block->next;
  }
  block->state = BuddyBlock::State::kUsed;
  return block;
}

void BuddyHeap::release(BuddyBlock* block) {
  TENON_DCHECK(block->state == BuddyBlock::State::kUsed, "released a block that is not in use");
  while (block->parent != nullptr && buddy_of(block)->state == BuddyBlock::State::kFree) {
    unlink(buddy_of(block));
    BuddyBlock* parent = block->parent;
    halves_.destroy(reinterpret_cast<Halves*>(lower_half(block)));
    block = parent;
  }
  push(block);
}

BuddyBlock* BuddyHeap::extend(BuddyBlock* block, std::uint64_t size) {
  const auto order = static_cast<std::uint64_t>(order_for(size, 1));
  for (const BuddyBlock* part = block; part->order < order; part = part->parent)
    if (part->parent == nullptr || part->upper || part[1].state != BuddyBlock::State::kFree)
      return nullptr;
  while (block->order < order) {
    unlink(buddy_of(block));
    BuddyBlock* parent = block->parent;
    parent->context = block->context;
    parent->next = nullptr;
    parent->state = BuddyBlock::State::kUsed;
    halves_.destroy(reinterpret_cast<Halves*>(block));
    block = parent;
  }
  return block;
}

std::uint64_t BuddyHeap::largest_free() const {
  return mask_ == 0 ? 0 : std::bit_floor(mask_);
}

int BuddyHeap::order_for(std::uint64_t size, std::uint64_t alignment) const {
  const int wanted = std::bit_width(std::max(size, alignment) - 1);
  return std::max(wanted, min_order_);
}

void BuddyHeap::push(BuddyBlock* block) {
  block->state = BuddyBlock::State::kFree;
  BuddyBlock*& head = free_[block->order];
  block->prev = nullptr;
  block->next = head;
  if (head != nullptr) head->prev = block;
  head = block;
  mask_ |= block->size();
  free_bytes_ += block->size();
}

void BuddyHeap::unlink(BuddyBlock* block) {
  if (block->next != nullptr) block->next->prev = block->prev;
  if (block->prev != nullptr) {
    block->prev->next = block->next;
  } else {
    free_[block->order] = block->next;
    if (block->next == nullptr) mask_ &= ~block->size();
  }
  free_bytes_ -= block->size();
}

// The block is in no list. Its upper half goes to the free list, the lower one (block->next) to
// none.
void BuddyHeap::split(BuddyBlock* block) {
  Halves* halves = halves_.create();
  for (BuddyBlock* half : {&halves->lower, &halves->upper}) {
    half->parent = block;
    half->owner = block->owner;
    half->order = block->order - 1;
    half->offset = block->offset;
  }
  halves->upper.offset += halves->upper.size();
  halves->upper.upper = 1;
  block->state = BuddyBlock::State::kSplit;
  block->next = &halves->lower;
  push(&halves->upper);
}

// Returns the free bytes below the block and counts free leaves by order.
std::uint64_t BuddyHeap::check_tree(const BuddyBlock* block,
                                    std::array<std::uint64_t, 64>& counts) const {
  if (block->state == BuddyBlock::State::kUsed) return 0;
  if (block->state == BuddyBlock::State::kFree) {
    ++counts[block->order];
    return block->size();
  }
  const BuddyBlock* lower = block->next;
  const BuddyBlock* upper = lower + 1;
  TENON_CHECK(lower->parent == block && upper->parent == block,
              "halves at {} lost their parent (1)", block->offset);
  TENON_CHECK(!lower->upper && upper->upper && lower->offset == block->offset &&
                  upper->offset == block->offset + lower->size() &&
                  lower->order + 1 == block->order && upper->order == lower->order,
              "halves do not tile the block at {} (1)", block->offset);
  TENON_CHECK(lower->state != BuddyBlock::State::kFree || upper->state != BuddyBlock::State::kFree,
              "two free halves at {} did not join (2)", block->offset);
  return check_tree(lower, counts) + check_tree(upper, counts);
}

void BuddyHeap::check_invariants() const {
  std::array<std::uint64_t, 64> counts = {};
  std::uint64_t sum = 0;
  for (const BuddyBlock* root : roots_) sum += check_tree(root, counts);
  TENON_CHECK(sum == free_bytes_, "free bytes are {}, counted {} (3)", sum, free_bytes_);
  for (int order = 0; order < 64; ++order) {
    std::uint64_t listed = 0;
    const BuddyBlock* previous = nullptr;
    for (const BuddyBlock* b = free_[order]; b != nullptr; previous = b, b = b->next, ++listed)
      TENON_CHECK(b->prev == previous && b->state == BuddyBlock::State::kFree &&
                      b->order == static_cast<std::uint64_t>(order),
                  "list of order {} holds a wrong block at {} (3)", order, b->offset);
    TENON_CHECK(listed == counts[order], "list of order {} holds {} of {} free blocks (3)", order,
                listed, counts[order]);
    TENON_CHECK(((mask_ >> order) & 1) == (listed > 0), "mask bit {} is wrong (3)", order);
  }
}

}  // namespace tenon
