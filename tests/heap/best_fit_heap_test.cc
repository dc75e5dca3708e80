#include "tenon/heap/best_fit_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"

namespace tenon {
namespace {

// The slowest possible best fit: a list of pieces by address, searched from end to end.
class NaiveHeap {
 public:
  using State = Block::State;
  struct Piece {
    std::uint64_t offset, size;
    State state;
    int extent;
  };
  using Pieces = std::list<Piece>;

  void add_extent(std::uint64_t offset, std::uint64_t size, bool backed) {
    auto at = pieces_.begin();
    while (at != pieces_.end() && at->offset < offset) ++at;
    pieces_.insert(at, {offset, size, backed ? State::kFree : State::kUnbacked, extents_++});
  }

  std::optional<std::uint64_t> place(std::uint64_t size, std::uint64_t alignment,
                                     std::uint64_t min_rest) {
    const auto holds = [&](const Piece& p) {
      return align_up(p.offset, alignment) + size <= p.offset + p.size;
    };
    auto best = smallest([&](const Piece& p) { return p.size >= size; });
    if (best == pieces_.end()) return std::nullopt;
    if (!holds(*best))
      best = smallest([&](const Piece& p) { return p.size >= size + alignment - 1; });
    if (best == pieces_.end())
      best = smallest([&](const Piece& p) { return p.size >= size && holds(p); });
    if (best == pieces_.end()) return std::nullopt;
    const std::uint64_t start = align_up(best->offset, alignment);
    if (start > best->offset) {
      pieces_.insert(best, {best->offset, start - best->offset, State::kFree, best->extent});
      best->size -= start - best->offset;
      best->offset = start;
    }
    if (best->size > size && best->size - size >= min_rest) cut(best, size);
    best->state = State::kUsed;
    return start;
  }

  void set_state(std::uint64_t offset, State state) {
    at(offset)->state = state;
    merge();
  }

  // The rest of a used piece becomes free.
  void split(std::uint64_t offset, std::uint64_t size) {
    const auto piece = at(offset);
    cut(piece, size);
    std::next(piece)->state = State::kFree;
    merge();
  }

  // Part of a free piece changes its backing.
  void set_part(std::uint64_t offset, std::uint64_t size, State state) {
    const auto piece = at(offset);
    if (piece->size > size) cut(piece, size);
    piece->state = state;
    merge();
  }

  const Pieces& pieces() const { return pieces_; }

 private:
  template <typename Fits>
  Pieces::iterator smallest(Fits&& fits) {
    auto best = pieces_.end();
    for (auto p = pieces_.begin(); p != pieces_.end(); ++p)
      if (p->state == State::kFree && fits(*p) && (best == pieces_.end() || p->size < best->size))
        best = p;
    return best;
  }
  Pieces::iterator at(std::uint64_t offset) {
    auto p = pieces_.begin();
    while (p->offset != offset) ++p;
    return p;
  }
  void cut(Pieces::iterator piece, std::uint64_t size) {
    pieces_.insert(std::next(piece), {piece->offset + size, piece->size - size, piece->state,
                                      piece->extent});
    piece->size = size;
  }
  void merge() {
    for (auto p = pieces_.begin(); std::next(p) != pieces_.end();) {
      const auto next = std::next(p);
      if (p->state != State::kUsed && p->state == next->state && p->extent == next->extent) {
        p->size += next->size;
        pieces_.erase(next);
      } else {
        ++p;
      }
    }
  }
  Pieces pieces_;
  int extents_ = 0;
};

// Both heaps side by side; every step is done to both and the results compared.
class Pair {
 public:
  explicit Pair(std::uint64_t seed) : random_(seed) {
    // Two of the extents touch: blocks must not merge across the border.
    add_extent(1 << 20, 1 << 18, true);
    add_extent((1 << 20) + (1 << 18), 1 << 18, true);
    add_extent(1 << 16, 1 << 17, false);
  }

  void step() {
    switch (random_.below(8)) {
      case 0: case 1: case 2: place(); break;
      case 3: case 4: release(); break;
      case 5: split_used(); break;
      default: change_backing(); break;
    }
    compare();
  }

 private:
  void add_extent(std::uint64_t offset, std::uint64_t size, bool backed) {
    extents_.push_back(heap_.add_extent(offset, size, backed));
    naive_.add_extent(offset, size, backed);
  }

  void place() {
    const std::uint64_t size = 1 + random_.below(1ull << random_.between(2, 15));
    const std::uint64_t alignment = random_.chance(0.5) ? 1 : 1ull << random_.below(13);
    const std::uint64_t min_rest = random_.chance(0.5) ? 1 : 256;
    Block* block = heap_.place(size, alignment, min_rest);
    const auto expected = naive_.place(size, alignment, min_rest);
    ASSERT_EQ(block != nullptr, expected.has_value());
    if (block == nullptr) return;
    ASSERT_EQ(block->offset, *expected);
    used_.push_back(block);
  }

  void release() {
    if (used_.empty()) return;
    const std::size_t pick = random_.below(used_.size());
    naive_.set_state(used_[pick]->offset, Block::State::kFree);
    heap_.release(used_[pick]);
    used_.erase(used_.begin() + static_cast<std::ptrdiff_t>(pick));
  }

  void split_used() {
    if (used_.empty()) return;
    Block* block = used_[random_.below(used_.size())];
    if (block->size < 2) return;
    const std::uint64_t size = 1 + random_.below(block->size - 1);
    naive_.split(block->offset, size);
    heap_.split(block, size);
  }

  // Some free block loses or gets its memory, whole or in part.
  void change_backing() {
    std::vector<Block*> free;
    for (Block* extent : extents_)
      BestFitHeap::for_each_in_extent(extent, [&](Block* block) {
        if (block->state != Block::State::kUsed) free.push_back(block);
      });
    if (free.empty()) return;
    Block* block = free[random_.below(free.size())];
    const bool backed = block->state == Block::State::kFree;
    std::uint64_t size = block->size;
    if (size > 1 && random_.chance(0.7)) {
      size = 1 + random_.below(size - 1);
      heap_.split_free(block, size);
    }
    naive_.set_part(block->offset, size, backed ? Block::State::kUnbacked : Block::State::kFree);
    backed ? heap_.unback(block) : heap_.back(block);
  }

  void compare() {
    heap_.check_invariants();
    std::vector<std::pair<std::uint64_t, std::pair<std::uint64_t, int>>> ours, theirs;
    std::uint64_t free = 0, largest = 0, count = 0;
    std::vector<std::uint64_t> unbacked, unbacked_theirs;
    for (const Block* block : heap_.unbacked()) unbacked.push_back(block->offset);
    for (Block* extent : extents_)
      BestFitHeap::for_each_in_extent(extent, [&](const Block* block) {
        ours.push_back({block->offset, {block->size, static_cast<int>(block->state)}});
      });
    for (const NaiveHeap::Piece& p : naive_.pieces()) {
      theirs.push_back({p.offset, {p.size, static_cast<int>(p.state)}});
      if (p.state == Block::State::kUnbacked) unbacked_theirs.push_back(p.offset);
      if (p.state != Block::State::kFree) continue;
      ++count;
      free += p.size;
      largest = std::max(largest, p.size);
    }
    std::sort(ours.begin(), ours.end());
    ASSERT_EQ(ours, theirs);
    ASSERT_EQ(heap_.free_bytes(), free);
    ASSERT_EQ(heap_.free_blocks(), count);
    ASSERT_EQ(heap_.largest_free(), largest);
    ASSERT_EQ(unbacked, unbacked_theirs);
  }

  Random random_;
  BestFitHeap heap_;
  NaiveHeap naive_;
  std::vector<Block*> extents_;  // an extent's lowest block stays the same
  std::vector<Block*> used_;
};

TEST(BestFitHeapTest, AgreesWithANaiveSearchUnderRandomSteps) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Pair pair(seed);
    for (int i = 0; i < 1500; ++i) {
      pair.step();
      if (HasFailure()) FAIL() << "step " << i;
    }
  }
}

TEST(BestFitHeapTest, TakesTheSmallestThatFitsAndTheLowestAmongEquals) {
  BestFitHeap heap;
  heap.add_extent(10000, 300);
  heap.add_extent(20000, 200);
  heap.add_extent(5000, 200);
  EXPECT_EQ(heap.place(150)->offset, 5000u);
  EXPECT_EQ(heap.place(150)->offset, 20000u);
  EXPECT_EQ(heap.place(150)->offset, 10000u);
  EXPECT_EQ(heap.place(150)->offset, 10150u);
  EXPECT_EQ(heap.place(150), nullptr);
}

TEST(BestFitHeapTest, ARestSmallerThanTheMinimumStaysWithItsBlock) {
  BestFitHeap heap;
  heap.add_extent(0, 1000);
  EXPECT_EQ(heap.place(900, 1, 101)->size, 1000u);
  heap.add_extent(5000, 1000);
  EXPECT_EQ(heap.place(900, 1, 100)->size, 900u) << "a rest of exactly the minimum is kept";
  EXPECT_EQ(heap.free_bytes(), 100u);
}

TEST(BestFitHeapTest, TheBackOfAFreeBlockCanBeTaken) {
  BestFitHeap heap;
  Block* whole = heap.add_extent(100, 50);
  Block* back = heap.take_back(whole, 20);
  EXPECT_EQ(back->offset, 130u);
  EXPECT_EQ(back->size, 20u);
  EXPECT_EQ(heap.free_bytes(), 30u);
  heap.check_invariants();
  EXPECT_EQ(heap.release(back), whole);
  EXPECT_EQ(whole->size, 50u);
  heap.check_invariants();
}

// Both parts are free, alike and found by their own size, until one of them changes its backing.
TEST(BestFitHeapTest, AFreeBlockCanBeCutInTwo) {
  BestFitHeap heap;
  Block* front = heap.add_extent(100, 50);
  Block* back = heap.split_free(front, 20);
  EXPECT_EQ(front->offset, 100u);
  EXPECT_EQ(front->size, 20u);
  EXPECT_EQ(back->offset, 120u);
  EXPECT_EQ(back->size, 30u);
  EXPECT_EQ(front->next, back);
  EXPECT_EQ(back->prev, front);
  EXPECT_EQ(back->owner, front->owner);
  EXPECT_EQ(heap.free_blocks(), 2u);
  EXPECT_EQ(heap.free_bytes(), 50u);
  EXPECT_EQ(heap.find(20), front);
  EXPECT_EQ(heap.find(21), back);
  EXPECT_EQ(heap.find(31), nullptr);
  EXPECT_EQ(heap.unback(back), back);
  EXPECT_EQ(heap.find(21), nullptr);
  EXPECT_EQ(heap.free_bytes(), 20u);
  EXPECT_EQ(heap.unbacked(), BestFitHeap::BlocksByOffset{back});
  heap.check_invariants();
  EXPECT_EQ(heap.back(back), front) << "alike again, they merge";
  EXPECT_EQ(front->size, 50u);
  heap.check_invariants();
}

TEST(BestFitHeapTest, AddressesWithoutMemoryCanBeCutInTwo) {
  BestFitHeap heap;
  Block* front = heap.add_extent(0, 40, false);
  Block* back = heap.split_free(front, 10);
  EXPECT_EQ(back->state, Block::State::kUnbacked);
  EXPECT_EQ(heap.unbacked().size(), 2u);
  EXPECT_EQ(heap.free_bytes(), 0u);
  EXPECT_EQ(heap.back(front), front);
  heap.check_invariants();
  EXPECT_EQ(heap.place(10), front);
  EXPECT_EQ(heap.place(1), nullptr) << "the other part has no memory";
}

TEST(BestFitHeapTest, AlignedRequestsFindTheOnlyBlockThatHoldsThem) {
  BestFitHeap heap;
  heap.add_extent(1, 4096);      // holds no aligned 4096
  heap.add_extent(8192, 4096);   // does, though it is no larger
  EXPECT_EQ(heap.place(4096, 4096)->offset, 8192u);
}

TEST(BestFitHeapTest, AdjacentExtentsDoNotMerge) {
  BestFitHeap heap;
  heap.add_extent(0, 100);
  heap.add_extent(100, 100);
  EXPECT_EQ(heap.place(150), nullptr);
  Block* a = heap.place(100);
  Block* b = heap.place(100);
  heap.release(a);
  heap.release(b);
  EXPECT_EQ(heap.largest_free(), 100u);
}

TEST(BestFitHeapTest, AnExtentsFirstBlockStaysItsName) {
  BestFitHeap heap;
  Block* extent = heap.add_extent(0, 4096);
  Block* a = heap.place(100);
  Block* b = heap.place(100);
  EXPECT_EQ(a, extent);
  heap.release(a);
  heap.release(b);
  EXPECT_EQ(extent->size, 4096u);
  heap.remove_extent(extent);
  EXPECT_EQ(heap.free_bytes(), 0u);
}

TEST(BestFitHeapTest, AnExtentInUseCannotBeRemoved) {
  BestFitHeap heap;
  Block* extent = heap.add_extent(0, 4096);
  heap.place(100);
  EXPECT_THROW(heap.remove_extent(extent), InternalError);
}

// What frees, merges and crowded bins need was reserved when the blocks were made.
TEST(BestFitHeapTest, ReleaseTakesNoMemoryHoweverManyBlocksAreFree) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    BestFitHeap heap;
    heap.add_extent(0, std::uint64_t{1} << 40);
    std::vector<Block*> held;
    for (int round = 0; round < 4; ++round) {
      while (held.size() < 6000) held.push_back(heap.place(512 * random.between(1, 4)));
      const std::uint64_t before = heap.metadata_bytes();
      // Every other one first, so that thousands of equal blocks are free; then most of the rest.
      std::size_t kept = 0;
      for (std::size_t i = 0; i < held.size(); ++i)
        if (i % 2 == 0)
          heap.release(held[i]);
        else
          held[kept++] = held[i];
      held.resize(kept);
      heap.check_invariants();
      EXPECT_GT(heap.free_blocks(), 1000u);
      EXPECT_EQ(heap.metadata_bytes(), before);
      while (held.size() > 50 * static_cast<std::size_t>(round)) {
        const std::size_t pick = random.below(held.size());
        heap.release(held[pick]);
        held[pick] = held.back();
        held.pop_back();
      }
      heap.check_invariants();
      EXPECT_EQ(heap.metadata_bytes(), before);
    }
  }
}

}  // namespace
}  // namespace tenon
