// Memory that stays where it is: for captured graphs, and for pools that a program keeps apart.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tenon/memory/gpu/stream_ordered_allocator.h"

namespace tenon {

// A graph that is captured from a stream uses the addresses of all that it used whenever it is
// launched, also after the blocks were freed. So a freed block goes to the pool's next request and
// to no other, no page moves, and nothing is given back until allow_release().
//
// A graph may be launched on any stream. Its launches go on when the graph is destroyed
// (cuGraphExecDestroy frees an executable graph in flight on its completion). So what goes back to
// the driver does so after a wait for the whole device; during a capture nothing goes back.
//
// Placement is that of the stream-ordered policies; it grows by segments of 2 MiB for small blocks,
// else by the request rounded up to pages. With virtual memory no growth waits for the device, as a
// capture demands.
//
// Thread safety and failure: as StreamOrderedAllocator. Fast path O(log free blocks).
class PrivatePool final : public StreamOrderedAllocator {
 public:
  // What the pool is made of. Pages come and go without a wait; only whole segments of the driver
  // can be opened to other processes by cudaIpcGetMemHandle.
  enum class Made : bool { kOfPages, kOfSegments };

  // `on_shortage`: called, with no lock of the pool's heaps held, when the device has no memory
  // left; it gives back what others can spare. May be empty.
  explicit PrivatePool(Backend& backend, std::function<void()> on_shortage = {},
                       Made made = Made::kOfPages, std::uint64_t limit_bytes = 0);
  // Gives everything back, whatever is still in use.
  ~PrivatePool() override;

  std::string name() const override { return "private pool"; }

  // No graph needs the addresses any more: what is free goes back to the driver, now and from now
  // on (empty_cache). Blocks in use stay valid.
  void allow_release();
  // The opposite: from now on it keeps all that it has and gets.
  void hold();

 protected:
  bool grow_pool(BlockHeap& heap, Pool pool, std::uint64_t rounded) override;
  bool release_cached() override;
  // From the driver whole, or pages at addresses of their own: `handle` is then the pages' id.
  std::optional<Segment> make_segment(std::uint64_t size_bytes) override;
  void free_segment(const Segment& segment) override;

 private:
  void give_back_unmapped();

  const std::function<void()> on_shortage_;
  const bool of_pages_;
  bool may_release_ = false;  // under growth_mutex_
  std::vector<Segment> unmapped_;  // that the driver would not take back
  IdleCache idle_cache_{*this};  // last
};

}  // namespace tenon
