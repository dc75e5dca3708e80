// Freed blocks that other streams than their own still use.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tenon/base/slab.h"
#include "tenon/heap/block.h"
#include "tenon/memory/front/completion.h"

namespace tenon {

// The uses of one heap's blocks on other streams (record_stream), and the blocks that were freed
// while such uses may go on. All that a free needs is reserved when the use is recorded: a node,
// which hangs on the block's `context`, and room for an event. The pending blocks form a list by
// their `link`.
//
// Not thread-safe (the heap's lock). process: O(pending blocks and uses).
class PendingFrees {
 public:
  // When the events are recorded that tell the end of a block's uses: at each free, or when it is
  // asked what is over, one for all the frees since then. That should be seldom.
  enum class Events : bool { kAtEachFree, kWhenAsked };

  explicit PendingFrees(Backend& backend, Events events = Events::kAtEachFree)
      : backend_(backend), events_(events) {}
  PendingFrees(const PendingFrees&) = delete;
  PendingFrees& operator=(const PendingFrees&) = delete;

  static bool has_uses(const Block* block) { return (block->flags & kHasUses) != 0; }
  // The block is also used by work on `stream`.
  void record_use(Block* block, Stream stream);
  // The block was freed: it waits for what its uses' streams were given until now. An event that
  // the driver refuses is recorded later. Requires: it has uses.
  void add(Block* block) noexcept;

  // Whether to look, at each allocation, for uses that are over.
  bool is_due() const { return is_due_; }
  bool contains(const Block* block) const;
  // Calls done(block) for each block whose uses are over, in the order of the frees; waits for all
  // of them if `wait`. Throws what the driver throws; the blocks that are left stay.
  template <typename Done>
  void process(bool wait, Done&& done) {
    if (!wait) poll();
    for (Block** at = &first_; *at != nullptr;) {
      Block* const block = *at;
      if (!is_over(block, wait)) {
        at = &block->link;
        continue;
      }
      *at = block->link;
      if (*at == nullptr) last_ = at;
      drop_uses(block);
      done(block);
    }
    is_due_ &= first_ != nullptr;
  }

 private:
  struct Use {
    Completion* stream;
    std::uint64_t number;  // once the block is freed
    Use* next;
  };
  static constexpr std::uint8_t kHasUses = 1;  // of Block::flags: `context` is the first Use

  static Use* uses_of(const Block* block) {
    return has_uses(block) ? static_cast<Use*>(block->context) : nullptr;
  }
  Completion& completion_of(Stream stream);
  void poll();
  static bool is_over(const Block* block, bool wait);
  void drop_uses(Block* block);

  Backend& backend_;
  const Events events_;
  Slab<Use, 32> uses_;
  std::vector<std::unique_ptr<Completion>> streams_;  // by id; of the streams that were named
  bool is_due_ = false;
  Block* first_ = nullptr;
  Block** last_ = &first_;  // where the next one goes
};

}  // namespace tenon
