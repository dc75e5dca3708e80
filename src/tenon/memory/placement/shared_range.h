// One range of memory that the streams of a plan share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "tenon/base/biased_lock.h"
#include "tenon/base/ordered_bits.h"
#include "tenon/heap/plan.h"
#include "tenon/memory/front/completion.h"
#include "tenon/memory/front/extent_heap.h"

namespace tenon {

// Knows who uses which bytes and which stream left them last, whatever the plan says: streams may
// interleave otherwise than recorded, so nothing is taken from the plan's order. Bytes that another
// stream has left are handed over in stream order: the taking stream is made to wait for an event
// of the leaving one (recorded then, not at every free), once for all that it left up to there.
//
// Note [borders]: a block can begin and end only where the plan says that some block does. Those
// offsets are numbered, once; pieces of the range are kept by the number of the border at which
// they begin, so looking one up compares no offsets and allocates nothing.
//
//   borders   0   1     2  3        4    5     of all slots of all streams
//   pieces    |---------|--|-------------|     begin at 0, 2 and 3; at every claim as few are cut
//               left by   in    left by        as the new block needs, and those inside it go
//               stream 1  use   stream 0
//
// Thread-safe by a lock of its own, which a heap takes last. claim: O(1) amortised (each adds two
// pieces at most and pays for those it removes) but for the tree of words over n borders, of
// log64(n) levels; give_back: O(1). A driver that refuses an event throws DeviceError, and nothing
// has changed.
class SharedRange {
 public:
  // Where a block lies, by the numbers of its borders.
  struct Span {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  [[gnu::cold]] SharedRange(Backend& backend, const Plan& plan);
  // Requires: both ends are those of slots of the plan. O(log n).
  Span span_of(std::uint64_t offset, std::uint64_t size) const;

  // Takes the span for the stream. False, and nothing happens, where a block of any stream is in
  // the way, or the memory that the stream knows (`generation`) has gone back.
  bool claim(Span span, Stream stream, std::uint64_t generation);
  // The same where the stream waits already for all that others have left there: no driver call, no
  // exception. False, and nothing happens, in all other cases.
  bool claim_fast(Span span, Stream stream, std::uint64_t generation) noexcept;
  // Requires: the span was claimed for the stream.
  void give_back(Span span, Stream stream);

  // The memory, once a caller has brought it; null before, and after it has gone back. Changes
  // under the allocator's growth mutex only.
  Extent* chunk() const { return chunk_; }
  // Rises whenever the memory comes or goes, so that heaps see that what they knew is over.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  [[gnu::cold]] void bring(Extent* chunk);
  // True where no block is in use; then no claim succeeds until take_away.
  bool close_if_free();
  [[gnu::cold]] void take_away();

  // Throws InternalError when the pieces do not agree with what was claimed.
  [[gnu::cold]] void check_invariants() const;

 private:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  struct Piece {
    bool is_for(std::uint32_t taker) const { return stream == taker || stream == kNobody; }
    std::uint64_t number : 63 = 0;  // of its stream, when that left it
    std::uint64_t in_use : 1 = 0;
    std::uint32_t stream = kNobody;
    std::uint32_t end = 0;  // the border where the next one begins; 0: none begins here
  };
  static_assert(sizeof(Piece) == 16);

  Completion& of(Stream stream);
  std::size_t piece_with(std::uint32_t border) const;
  bool is_open(std::uint64_t generation) const {
    return !closed_ && generation == generation_.load(std::memory_order_relaxed);
  }
  bool is_own_piece(Span span, Stream stream) const;
  bool is_free(Span span, std::size_t first, Stream stream, bool& is_ordered) const;
  void take(Span span, Stream stream);
  void wait_for_others(Span span, std::size_t first, Stream stream);
  void make_one_piece(Span span, std::size_t first);

  Backend& backend_;
  std::vector<std::uint64_t> borders_;  // offsets, in order; the first is 0
  Extent* chunk_ = nullptr;
  std::atomic<std::uint64_t> generation_{0};
  mutable BiasedLock lock_;  // all below
  bool closed_ = false;
  std::size_t in_use_ = 0;      // pieces
  OrderedBits begins_;          // the borders at which a piece begins; always at 0
  std::vector<Piece> pieces_;   // by that border
  std::vector<std::unique_ptr<Completion>> streams_;  // by id; a ticket for each block given back
};

}  // namespace tenon
