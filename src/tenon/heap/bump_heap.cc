#include "tenon/heap/bump_heap.h"

#include <algorithm>
#include <bit>

#include "tenon/base/align.h"
#include "tenon/base/check.h"

namespace tenon {

BumpExtent* BumpHeap::add_extent(std::uint64_t offset, std::uint64_t size) {
  TENON_CHECK(size > 0, "an extent needs a size");
  BumpExtent* extent = extent_slab_.create();
  extent->offset = offset;
  extent->size = size;
  extent->region = region_slab_.create();
  extent->region->extent = extent;
  extents_.push_back(extent);
  push(extent);
  return extent;
}

void BumpHeap::remove_extent(BumpExtent* extent) {
  TENON_CHECK(is_wholly_free(extent), "an extent with {} residents or an open scope cannot go",
              extent->residents);
  if (extent == current_) {
    current_ = nullptr;
  } else {
    unlink(extent);
  }
  extents_.erase(std::find(extents_.begin(), extents_.end(), extent));
  region_slab_.destroy(extent->region);
  extent_slab_.destroy(extent);
}

BumpHeap::Handle BumpHeap::place(std::uint64_t size, std::uint64_t alignment) {
  if (current_ != nullptr)
    if (const Handle block = bump(current_, size, alignment)) return block;
  // The start of an extent may have to be aligned too.
  BumpExtent* fresh = take_empty(size + alignment - 1);
  if (fresh == nullptr) fresh = take_empty(size);
  if (fresh == nullptr) return {};
  const Handle block = bump(fresh, size, alignment);
  if (!block) {
    push(fresh);
    return {};
  }
  leave_current();
  make_current(fresh);
  return block;
}

BumpHeap::Handle BumpHeap::bump(BumpExtent* extent, std::uint64_t size, std::uint64_t alignment) {
  const std::uint64_t start = align_up(extent->offset + extent->used, alignment) - extent->offset;
  if (start > extent->size || size > extent->size - start) return {};
  extent->used = start + size;
  ++extent->residents;
  ++extent->region->residents;
  return {extent->region, extent->offset + start, size};
}

void BumpHeap::release(const Handle& block) {
  BumpRegion* region = block.region;
  BumpExtent* extent = region->extent;
  TENON_DCHECK(region->residents > 0, "released more blocks than were placed");
  --extent->residents;
  if (--region->residents == 0 && !region->open) retire(region);
  if (extent->residents == 0) settle(extent);
}

// A closed region has lost its last resident. The pointer goes back over it if nothing lies behind
// it, and the region that it lay in has one resident less.
void BumpHeap::retire(BumpRegion* region) {
  BumpExtent* extent = region->extent;
  while (region->residents == 0 && !region->open) {
    BumpRegion* outer = region->outer;
    // A scope opened since then starts above: the pointer may not go below its start.
    if (region->end == extent->used && region->begin >= extent->region->begin) {
      // Closed regions around it ended here as well; the next block does not belong to them.
      for (BumpRegion* r = outer; !r->open && r->end == extent->used; r = r->outer)
        r->end = region->begin;
      extent->used = region->begin;
    }
    region_slab_.destroy(region);
    --outer->residents;
    region = outer;
  }
}

// No block is in the extent: the pointer goes back to where the innermost open scope began.
void BumpHeap::settle(BumpExtent* extent) {
  extent->used = extent->region->begin;
  if (extent->place == BumpExtent::Place::kRetired && extent->region->outer == nullptr)
    push(extent);
}

BumpHeap::Mark BumpHeap::mark() {
  ++depth_;
  if (current_ == nullptr) return {nullptr, depth_};
  BumpRegion* region = region_slab_.create();
  region->extent = current_;
  region->outer = current_->region;
  region->begin = current_->used;
  current_->region = region;
  return {region, depth_};
}

void BumpHeap::rewind(const Mark& mark) {
  TENON_CHECK(mark.depth == depth_, "rewound mark {} of {}: the innermost goes first", mark.depth,
              depth_);
  --depth_;
  if (mark.region == nullptr) return;
  BumpRegion* region = mark.region;
  BumpExtent* extent = region->extent;
  extent->region = region->outer;
  if (region->residents == 0) {
    extent->used = region->begin;
    region_slab_.destroy(region);
  } else {
    region->open = false;
    region->end = extent->used;
    ++region->outer->residents;
  }
  // The program is back where it was: so is the pointer.
  if (extent != current_) {
    leave_current();
    make_current(extent);
  }
  if (extent->residents == 0) settle(extent);
}

void BumpHeap::make_current(BumpExtent* extent) {
  extent->place = BumpExtent::Place::kCurrent;
  current_ = extent;
}

void BumpHeap::leave_current() {
  if (current_ == nullptr) return;
  current_->place = BumpExtent::Place::kRetired;
  if (current_->residents == 0) settle(current_);
  current_ = nullptr;
}

int BumpHeap::class_of(std::uint64_t size) { return std::bit_width(size | 1) - 1; }

// An empty extent of at least `room` bytes, no longer in its list, or null. Any extent of a higher
// class is large enough; of the request's own class only the first is tried.
BumpExtent* BumpHeap::take_empty(std::uint64_t room) {
  const int own = class_of(room);
  BumpExtent* extent = empty_[own];
  if (extent == nullptr || extent->size < room) {
    const std::uint64_t higher = own == 63 ? 0 : mask_ & (~std::uint64_t{0} << (own + 1));
    if (higher == 0) return nullptr;
    extent = empty_[std::countr_zero(higher)];
  }
  unlink(extent);
  return extent;
}

void BumpHeap::push(BumpExtent* extent) {
  const int index = class_of(extent->size);
  extent->place = BumpExtent::Place::kEmpty;
  extent->prev = nullptr;
  extent->next = empty_[index];
  if (extent->next != nullptr) extent->next->prev = extent;
  empty_[index] = extent;
  mask_ |= std::uint64_t{1} << index;
  empty_bytes_ += extent->size;
}

void BumpHeap::unlink(BumpExtent* extent) {
  const int index = class_of(extent->size);
  if (extent->next != nullptr) extent->next->prev = extent->prev;
  if (extent->prev != nullptr) {
    extent->prev->next = extent->next;
  } else {
    empty_[index] = extent->next;
    if (extent->next == nullptr) mask_ &= ~(std::uint64_t{1} << index);
  }
  empty_bytes_ -= extent->size;
}

std::uint64_t BumpHeap::free_bytes() const {
  return empty_bytes_ + (current_ == nullptr ? 0 : current_->size - current_->used);
}

std::uint64_t BumpHeap::largest_free() const {
  std::uint64_t largest = current_ == nullptr ? 0 : current_->size - current_->used;
  // The first of the highest class is what a request of its size would be given.
  if (mask_ != 0) largest = std::max(largest, empty_[63 - std::countl_zero(mask_)]->size);
  return largest;
}

void BumpHeap::check_invariants() const {
  std::uint64_t empty = 0;
  for (const BumpExtent* extent : extents_) {
    bool nested = false;
    for (const BumpRegion* region = extent->region; region != nullptr; region = region->outer) {
      TENON_CHECK(region->open && region->extent == extent, "a closed region is growing (3)");
      TENON_CHECK(region->outer == nullptr || region->begin >= region->outer->begin,
                  "a region begins below its outer one (3)");
      TENON_CHECK(region->residents <= extent->residents, "{} residents in a region, {} in all (1)",
                  region->residents, extent->residents);
      nested |= region->outer != nullptr;
    }
    TENON_CHECK(extent->used <= extent->size, "the pointer left its extent (1)");
    TENON_CHECK((extent->place == BumpExtent::Place::kCurrent) == (extent == current_),
                "two extents are current (2)");
    if (extent->residents == 0 && !nested)
      TENON_CHECK(extent->used == 0 && extent->place != BumpExtent::Place::kRetired,
                  "an extent without residents was not rewound (1)");
    if (extent->place == BumpExtent::Place::kEmpty) {
      TENON_CHECK(extent->residents == 0 && !nested, "an extent in use is listed as empty (2)");
      ++empty;
    }
  }
  std::uint64_t listed = 0;
  for (int index = 0; index < 64; ++index) {
    TENON_CHECK(((mask_ >> index) & 1) == (empty_[index] != nullptr), "mask bit {} is wrong (2)",
                index);
    for (const BumpExtent* e = empty_[index]; e != nullptr; e = e->next) {
      TENON_CHECK(e->place == BumpExtent::Place::kEmpty && class_of(e->size) == index,
                  "list {} holds a wrong extent (2)", index);
      ++listed;
    }
  }
  TENON_CHECK(listed == empty, "{} empty extents, {} listed (2)", empty, listed);
}

}  // namespace tenon
