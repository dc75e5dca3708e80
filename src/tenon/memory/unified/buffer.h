// The records behind the unified allocator's memory: buffers, and the heaps they lie in.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/device/backend.h"
#include "tenon/heap/block.h"
#include "tenon/memory/unified/completions.h"

namespace tenon {
class UnifiedAllocator;
}

namespace tenon::unified {

class BufferPool;

// Whether the host reaches a buffer's bytes as the device does.
enum class Storage : std::uint8_t { kShared, kPrivate };

// One segment of the driver, cut into buffers.
struct BufferHeap {
  Segment segment;
  std::uint64_t base_offset = 0;  // where it starts in its pool's range of offsets
  BufferPool* pool = nullptr;
  Block* first = nullptr;         // its lowest block; the same object for as long as the heap lives
  std::uint64_t buffers_out = 0;  // in use, or freed but pending
  std::uint64_t idle_since = 0;   // see IdleHeaps
  BufferHeap* older = nullptr;    // links of the list of idle heaps
  BufferHeap* newer = nullptr;
};

// Work on another stream than the pool's that a buffer must outlive.
struct BufferUse {
  Ticket point;
  bool open = false;  // goes on until the buffer is freed (record_stream)
  BufferUse* next = nullptr;
};

// A buffer keeps its identity while it is in use and while it is cached; it ends when its bytes
// join the free room of its heap.
struct Buffer {
  enum class State : std::uint8_t {
    kInUse,
    kPending,  // freed, while other streams may still use it
    kCached,   // free for the pool's own stream
  };

  Block* place = nullptr;         // its bytes in the pool's BestFitHeap
  UnifiedAllocator* allocator = nullptr;
  BufferHeap* heap = nullptr;
  void* data = nullptr;           // device address
  std::uint64_t id = 0;           // never used twice
  std::uint64_t requested_bytes = 0;
  void* group = nullptr;          // while cached: BufferCache's own, and its links
  Buffer* above = nullptr;
  Buffer* below = nullptr;
  Ticket freed;              // last free, on the pool's own stream
  BufferUse* uses = nullptr;
  std::vector<std::int64_t>* shape = nullptr;  // owned; null: not set
  std::uint32_t stream = 0;       // in use: whose order it follows
  State state = State::kInUse;
  bool may_pend = false;          // in use, and other streams may have to be waited for

  std::uint64_t size_bytes() const { return place->size; }
};

}  // namespace tenon::unified
