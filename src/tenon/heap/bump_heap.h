// A pointer that only moves up, over extents that count who still lives in them. A call against a
// requirement throws InternalError; lack of memory for an extent or a mark is std::bad_alloc.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tenon/base/slab.h"
#include "tenon/heap/heap.h"

namespace tenon {

// Where blocks of one scope live within one extent. The heap's own.
struct BumpRegion {
  struct BumpExtent* extent = nullptr;
  BumpRegion* outer = nullptr;   // the region that was growing when this one was marked
  std::uint64_t begin = 0;       // relative to the extent
  std::uint64_t end = 0;         // where the bump pointer stood when the region was closed
  std::uint64_t residents = 0;   // blocks placed here and not released, and closed regions in it
  bool open = true;              // its scope has not ended
};

// One extent. `owner` is the policy's; the rest is the heap's.
struct BumpExtent {
  // In which list an extent is.
  enum class Place : std::uint8_t { kEmpty, kCurrent, kRetired };

  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t used = 0;        // the bump pointer, relative to the extent
  std::uint64_t residents = 0;   // blocks not released, in all of its regions
  BumpRegion* region = nullptr;  // the innermost open region; the last of `outer` is the base
  BumpExtent* prev = nullptr;    // while empty: neighbours in the list of its size class
  BumpExtent* next = nullptr;
  void* owner = nullptr;
  Place place = Place::kEmpty;
};

// Placement by moving a pointer: a block is laid behind the last one. Releasing only counts; when
// an extent's last resident goes, the whole extent is empty again.
//
//   extent:  | a | b | (c) | d |..............|      (c) released: its bytes come back when a, b
//                              ^ bump pointer         and d are gone too
//
// Scopes: mark() remembers the pointer and rewind() goes back to it. Keeps blocks placed in between
// that are still resident (they escaped from the scope). Then the pointer stays, and returns when
// the last escaped block is released, if nothing was placed behind it meanwhile. Marks nest and are
// rewound innermost first.
//
// Invariants (check_invariants):
//   1. The pointer is inside its extent. An extent without residents and open scopes is rewound.
//   2. Empty extents, and only they, are in the lists. A bit of the mask says which lists are not
//      empty.
//   3. Open regions of an extent are ordered: each begins at or above the outer one.
//
// place, release, mark, rewind: O(1) (rewind: and the extents that the scope opened). When the
// current extent is full, the next one comes from the lists of empty ones by size class. It is one
// that is surely large enough, or the first of the request's own class. Not thread-safe.
class BumpHeap {
 public:
  // A block.
  struct Handle {
    BumpRegion* region = nullptr;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    // False: nothing fits.
    explicit operator bool() const { return region != nullptr; }
    BumpExtent* extent() const { return region->extent; }
  };
  // As the concept Heap asks (heap.h).
  static std::uint64_t offset_of(const Handle& block) { return block.offset; }
  static std::uint64_t size_of(const Handle& block) { return block.size; }

  // What mark() gives and rewind() takes. Requires: used once, innermost first.
  struct Mark {
    BumpRegion* region = nullptr;  // null: no extent was current
    std::uint64_t depth = 0;
  };

  BumpHeap() = default;
  BumpHeap(const BumpHeap&) = delete;
  BumpHeap& operator=(const BumpHeap&) = delete;

  // A new extent, empty. It lives until remove_extent.
  BumpExtent* add_extent(std::uint64_t offset, std::uint64_t size);
  // Whether the extent may be removed: no block is there and no scope is open in it.
  static bool is_wholly_free(const BumpExtent* extent) {
    return extent->residents == 0 && extent->region->outer == nullptr;
  }
  // Requires: is_wholly_free(extent).
  void remove_extent(BumpExtent* extent);

  // Empty when neither the current extent nor the chosen empty one has room. Requires: size > 0;
  // alignment is a power of two.
  Handle place(std::uint64_t size, std::uint64_t alignment = 1);
  void release(const Handle& block);

  // Begins a scope. O(1).
  Mark mark();
  // Ends the scope: back to where mark() was, except for what escaped.
  void rewind(const Mark& mark);

  // Room ahead of the bump pointer, and all empty extents.
  std::uint64_t free_bytes() const;
  std::uint64_t largest_free() const;
  [[gnu::cold]] void check_invariants() const;

 private:
  static int class_of(std::uint64_t size);
  Handle bump(BumpExtent* extent, std::uint64_t size, std::uint64_t alignment);
  BumpExtent* take_empty(std::uint64_t room);
  void push(BumpExtent* extent);
  void unlink(BumpExtent* extent);
  void make_current(BumpExtent* extent);
  void leave_current();
  void retire(BumpRegion* region);
  void settle(BumpExtent* extent);

  BumpExtent* current_ = nullptr;
  std::array<BumpExtent*, 64> empty_ = {};  // by floor(log2(size))
  std::uint64_t mask_ = 0;
  std::uint64_t empty_bytes_ = 0;
  std::uint64_t depth_ = 0;                 // open marks
  std::vector<BumpExtent*> extents_;
  Slab<BumpExtent, 32> extent_slab_;
  Slab<BumpRegion, 64> region_slab_;
};
static_assert(Heap<BumpHeap>);

}  // namespace tenon
