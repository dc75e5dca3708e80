#include "tenon/heap/best_fit_heap.h"

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/base/check.h"

namespace tenon {

BestFitHeap::~BestFitHeap() = default;

Block* BestFitHeap::add_extent(std::uint64_t offset, std::uint64_t size, bool backed) {
  TENON_CHECK(size > 0, "an extent needs a size");
  Block* block = make_block();
  block->offset = offset;
  block->size = size;
  block->state = backed ? Block::State::kFree : Block::State::kUnbacked;
  index(block);
  return block;
}

void BestFitHeap::remove_extent(Block* block) {
  TENON_CHECK(block->state != Block::State::kUsed, "an extent in use cannot be removed");
  TENON_CHECK(block->prev == nullptr && block->next == nullptr,
              "only a whole extent can be removed");
  unindex(block);
  slab_.destroy(block);
}

namespace {

bool holds(const Block* block, std::uint64_t size, std::uint64_t alignment) {
  return align_up(block->offset, alignment) + size <= block->offset + block->size;
}

}  // namespace

inline Block* BestFitHeap::choose(std::uint64_t size, std::uint64_t alignment) const {
  Block* smallest = index_.find(size);
  if (smallest == nullptr || holds(smallest, size, alignment)) [[likely]] return smallest;
  return choose_roomier(smallest, size, alignment);
}

Block* BestFitHeap::choose_roomier(Block* smallest, std::uint64_t size,
                                   std::uint64_t alignment) const {
  if (Block* roomy = index_.find(size + alignment - 1)) return roomy;
  while (smallest != nullptr && !holds(smallest, size, alignment))
    smallest = index_.after(smallest);
  return smallest;
}

Block* BestFitHeap::place(std::uint64_t size, std::uint64_t alignment, std::uint64_t min_rest) {
  Block* block = choose(size, alignment);
  if (block == nullptr) return nullptr;
  const std::uint64_t gap = align_up(block->offset, alignment) - block->offset;
  if (gap > 0) {
    if (!slab_.has(2)) reserve_blocks();
    block = take_back(block, block->size - gap);
    if (block->size > size && block->size - size >= min_rest) split(block, size);
    return block;
  }
  if (block->size > size && block->size - size >= min_rest)
    take_front(block, size);
  else
    take(block);
  return block;
}

Block* BestFitHeap::split(Block* block, std::uint64_t size) {
  return settle(cut(block, size), Block::State::kFree);
}

Block* BestFitHeap::split_used(Block* block, std::uint64_t size) {
  Block* rest = cut(block, size);
  rest->state = Block::State::kUsed;
  return rest;
}

Block* BestFitHeap::split_free(Block* block, std::uint64_t size) {
  if (!slab_.has(1)) reserve_blocks();
  unindex(block);
  Block* rest = cut(block, size);
  rest->state = block->state;
  index(block);
  index(rest);
  return rest;
}

Block* BestFitHeap::back(Block* block) {
  TENON_DCHECK(block->state == Block::State::kUnbacked);
  unindex(block);
  return settle(block, Block::State::kFree);
}

Block* BestFitHeap::unback(Block* block) {
  TENON_DCHECK(block->state == Block::State::kFree);
  unindex(block);
  return settle(block, Block::State::kUnbacked);
}

void BestFitHeap::reserve_cuts(std::size_t cuts) {
  while (!slab_.has(cuts)) reserve_blocks();
  // Each cut and each change of backing takes one node at most.
  spare_.reserve(std::max<std::size_t>(8, 2 * cuts));
  while (spare_.size() < 2 * cuts) {
    Block* block = nullptr;
    BlocksByOffset made;
    made.insert(block);
    spare_.push_back(made.extract(made.begin()));
  }
}

// A block that is in no index takes on `state` and merges with neighbours that are alike; of their
// stamps the highest stays.
Block* BestFitHeap::settle(Block* block, Block::State state) {
  block->state = state;
  Block* low = block->prev;
  if (low != nullptr && low->state == state) {
    unindex(low);
    low->size += block->size;
    low->requested = std::max<std::uint64_t>(low->requested, block->requested);
    absorb(low, block);
    block = low;
  }
  Block* high = block->next;
  if (high != nullptr && high->state == state) {
    unindex(high);
    block->size += high->size;
    block->requested = std::max<std::uint64_t>(block->requested, high->requested);
    absorb(block, high);
  }
  index(block);
  return block;
}

// Cuts an unindexed block in two; the upper part stays unindexed.
Block* BestFitHeap::cut(Block* block, std::uint64_t size) {
  TENON_DCHECK(size > 0 && size < block->size, "cannot cut {} bytes off {}", size, block->size);
  Block* rest = add_above(block);
  rest->offset = block->offset + size;
  rest->size = block->size - size;
  block->size = size;
  return rest;
}

// Memory for another block, and for the index of as many as there can be then.
void BestFitHeap::reserve_blocks() {
  const std::size_t blocks = slab_.next_capacity();
  index_.reserve_for(blocks);
  slab_.grow_to(blocks);
}

void BestFitHeap::index(Block* block) {
  if (block->state == Block::State::kUnbacked) {
    if (spare_.empty()) {
      unbacked_.insert(block);
    } else {
      spare_.back().value() = block;
      unbacked_.insert(std::move(spare_.back()));
      spare_.pop_back();
    }
    return;
  }
  index_.insert(block);
  free_bytes_ += block->size;
  ++free_blocks_;
}

void BestFitHeap::unindex(Block* block) {
  if (block->state == Block::State::kUnbacked) {
    auto node = unbacked_.extract(block);
    if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(node));
    return;
  }
  index_.erase(block);
  free_bytes_ -= block->size;
  --free_blocks_;
}

void BestFitHeap::check_invariants() const {
  index_.check_invariants();
  std::uint64_t sum = 0;
  std::uint64_t count = 0;
  index_.for_each([&](Block* block) {
    TENON_CHECK(block->state == Block::State::kFree, "a block in the index is not free (3)");
    sum += block->size;
    ++count;
    for (const Block* b = block; b->next != nullptr; b = b->next) {
      TENON_CHECK(b->next->prev == b, "links disagree at {} (1)", b->offset);
      TENON_CHECK(b->offset + b->size == b->next->offset, "a gap after {} (1)", b->offset);
      TENON_CHECK(b->state == Block::State::kUsed || b->state != b->next->state,
                  "free neighbours at {} did not merge (2)", b->offset);
      if (b->next->state == Block::State::kFree) break;  // seen from there
    }
  });
  TENON_CHECK(sum == free_bytes_, "free bytes are {}, counted {} (3)", free_bytes_, sum);
  TENON_CHECK(count == free_blocks_, "free blocks are {}, counted {} (3)", free_blocks_, count);
  for (const Block* block : unbacked_)
    TENON_CHECK(block->state == Block::State::kUnbacked, "a backed block is in unbacked() (3)");
}

}  // namespace tenon
