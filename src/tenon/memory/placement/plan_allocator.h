// The policy `plan`: offsets worked out from a recording, checked as they are used. Thread safety
// and failure: as ChunkedAllocator (chunked_allocator.h). A request as planned is O(1) amortised.
#pragma once

#include <cstdint>

#include "tenon/memory/placement/chunked_allocator.h"
#include "tenon/memory/placement/plan_placement.h"

namespace tenon {

extern template class FastPath<PlanPlacement, ChunkedAllocator>;

// Serves each stream from one segment of exactly the planned size. A request costs a comparison and
// a look at the few slots that its range was last used by.
// The plan may lack a request (another size, a block that lives too long, a stream that was not
// recorded). Such requests are noticed before any two blocks overlap, and counted. A caching
// allocator over the same backend serves them. PlanPlacement finds the program's place in the plan
// again. Stream n of the plan is the device's stream with id n. Where the plan lets streams share,
// there is one segment for all. A stream that takes over memory of another one waits for it
// (SharedRange). Everything else is ChunkedAllocator's.
class PlanAllocator final : public PlacementAllocator<PlanPlacement, PlanConfig> {
 public:
  // What is free goes back when memory is short, or stays until the end, since recorded work reads
  // and writes its addresses. Then a private pool serves what the plan lacks.
  enum class FreeMemory : bool { kGoesBack, kStays };

  // Throws InvalidArgument for a null plan. `plan` must outlive the allocator.
  [[gnu::cold]] PlanAllocator(Backend& backend, const Plan* plan, std::uint64_t limit_bytes = 0,
                              FreeMemory free_memory = FreeMemory::kGoesBack);

  std::size_t alignment() const override;

  [[gnu::cold]] std::vector<SegmentInfo> snapshot() const override;

  // Over all streams, since the start.
  PlanAdherence report() const;
  // In words, for a log: "35,000 of 35,283 requests as planned, 283 diverged (...)".
  [[gnu::cold]] std::string report_text() const;

 protected:
  bool release_cached() override {
    return free_memory_ == FreeMemory::kGoesBack && PlacementAllocator::release_cached();
  }

 private:
  const FreeMemory free_memory_;
  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
