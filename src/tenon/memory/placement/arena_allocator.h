// The policy `arena`: buffers of fixed size classes, straight from the driver, reused. Thread
// safety and failure: as ChunkedAllocator (chunked_allocator.h).
#pragma once

#include "tenon/memory/placement/arena_placement.h"
#include "tenon/memory/placement/chunked_allocator.h"

namespace tenon {

// The size-class half of the arena (scopes are the other). A request is rounded up by less than an
// eighth. Every stream keeps up to `max_per_size` free buffers of each size. Nothing is split or
// merged, so requests are fast, and it holds the most memory. For programs that ask for the same
// sizes over and over. When a request fails, every free buffer goes back first.
//
// Streams: a buffer is reused on its own stream only, at once. For a block that record_stream names
// for another stream, its own stream waits for the other at the free. allocate and free: O(1). A
// block's layout offset is its number among the buffers that its stream made. Everything else is
// ChunkedAllocator's.
class ArenaAllocator final : public PlacementAllocator<ArenaPlacement> {
 public:
  // Throws InvalidArgument for a `max_per_size` of 0.
  explicit ArenaAllocator(Backend& backend, const ArenaOptions& options = {});

  std::string name() const override { return "arena"; }

 protected:
  std::string advice() const override;

 private:
  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
