// One range of memory that the streams of a plan share.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/per_stream/chunk.h"
#include "tenon/memory/stitched/stream_clock.h"

namespace tenon {

// Knows who uses which bytes and which stream left them last, whatever the plan says: streams may
// interleave otherwise than recorded, so nothing is taken from the plan's order. Bytes that another
// stream has left are handed over in stream order: the taking stream is made to wait for an event
// of the leaving one (recorded then, not at every free), once for all that it left up to there.
//
// Thread-safe by a lock of its own, which a lane takes last. O(log n) for n blocks and pieces, plus
// the pieces taken over. A driver that refuses an event throws DeviceError, and nothing has
// changed.
class SharedRange {
 public:
  explicit SharedRange(Backend& backend) : backend_(backend) {}

  // Takes [offset, offset + size) for the stream. False, and nothing happens, where a block of any
  // stream is in the way, or the memory that the stream knows (`generation`) has gone back.
  bool claim(std::uint64_t offset, std::uint64_t size, Stream stream, std::uint64_t generation);
  void give_back(std::uint64_t offset, std::uint64_t size, Stream stream);

  // The memory, once somebody has brought it; null before, and after it has gone back. Changes
  // under the allocator's growth mutex only.
  Chunk* chunk() const { return chunk_; }
  // Rises whenever the memory comes or goes, so that lanes see that what they knew is over.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  void bring(Chunk* chunk);
  // True where no block is in use; then nobody claims anything until take_away.
  bool close_if_free();
  void take_away();

  // Throws InternalError when blocks overlap.
  void check_invariants() const;

 private:
  struct PerStream {
    PerStream(Backend& backend, Stream stream) : clock(backend, stream) {}
    StreamClock clock;
    std::uint64_t now = 0;               // rises with each block given back
    std::vector<std::uint64_t> awaited;  // by other stream: it waits for that one up to here
  };
  // Bytes up to `end`, left by a stream at its number.
  struct Left {
    std::uint64_t end;
    std::uint32_t stream;
    std::uint64_t number;
  };

  PerStream& of(Stream stream);
  void wait_for_others(std::uint64_t offset, std::uint64_t end, Stream stream);
  void forget(std::uint64_t offset, std::uint64_t end);

  Backend& backend_;
  Chunk* chunk_ = nullptr;
  std::atomic<std::uint64_t> generation_{0};
  mutable SpinLock lock_;  // all below
  bool closed_ = false;
  std::map<std::uint64_t, std::uint64_t> in_use_;  // begin to end
  std::map<std::uint64_t, Left> left_;             // by begin; never overlap
  std::vector<std::unique_ptr<PerStream>> streams_;  // by id
};

}  // namespace tenon
