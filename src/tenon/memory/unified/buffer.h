// The records behind the unified allocator's memory: buffers, and the heaps they lie in.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "tenon/base/pointer_map.h"
#include "tenon/base/reserve.h"
#include "tenon/base/slab.h"
#include "tenon/device/backend.h"
#include "tenon/heap/block.h"
#include "tenon/memory/observer.h"
#include "tenon/memory/unified/completions.h"

namespace tenon {
class UnifiedAllocator;
}

namespace tenon::unified {

class BufferPool;

// Whether the host reaches a buffer's bytes as the device does.
enum class Storage : std::uint8_t { kShared, kPrivate };

// Heaps taken and given back, for the observers.
using HeapChanges = std::list<MemoryEventInfo>;

// One segment of the driver, cut into buffers. Idle, and may go back, while no buffer is out.
struct BufferHeap {
  Segment segment;
  std::uint64_t base_offset = 0;  // where it starts in its pool's range of offsets
  BufferPool* pool = nullptr;
  Block* first = nullptr;         // its lowest block; the same object for as long as the heap lives
  std::uint64_t buffers_out = 0;  // in use, or freed but pending
  std::uint64_t idle_since = 0;   // by a clock of all heaps; means nothing while buffers are out
  HeapChanges farewell = HeapChanges(1);  // what tells of its release, which allocates nothing
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

// All buffers of one stream's pools. A buffer enters the map when it is cut from a heap and leaves
// it when it joins the heap's room again: recycling touches no map. O(1). Not thread-safe.
class BufferRecords {
 public:
  // Buffers are numbered after `last_id`, which all streams share.
  BufferRecords(UnifiedAllocator* allocator, std::atomic<std::uint64_t>& last_id)
      : allocator_(allocator), last_id_(last_id) {}
  ~BufferRecords() {
    by_address_.for_each([](const void*, Buffer* buffer) { delete buffer->shape; });
  }
  BufferRecords(const BufferRecords&) = delete;
  BufferRecords& operator=(const BufferRecords&) = delete;

  // A buffer for a used block of the heap.
  Buffer* create(Block* place, BufferHeap* heap) {
    Buffer* buffer = buffers_.create();
    buffer->place = place;
    buffer->allocator = allocator_;
    buffer->heap = heap;
    buffer->data =
        static_cast<std::byte*>(heap->segment.base) + (place->offset - heap->base_offset);
    buffer->id = 1 + last_id_.fetch_add(1, std::memory_order_relaxed);
    place->context = buffer;
    try {
      by_address_.insert(buffer->data, buffer);
    } catch (...) {
      buffers_.destroy(buffer);
      throw;
    }
    return buffer;
  }
  void destroy(Buffer* buffer) {
    by_address_.take(buffer->data);
    drop_uses(buffer);
    delete buffer->shape;
    buffers_.destroy(buffer);
  }

  // Null for a pointer that is no buffer's first byte.
  Buffer* find(const void* data) const { return by_address_.find(data); }

  // The buffer may have to wait for other streams when it is freed: reserves what that takes, one
  // use more and a place among the pool's `pending`.
  void expect_pending(Buffer* buffer, std::vector<Buffer*>& pending) {
    if (buffer->may_pend) return;
    uses_.reserve(expected_ + 1);
    reserve_more(pending, expected_ + 1);
    buffer->may_pend = true;
    ++expected_;
  }
  void settle_expected(Buffer* buffer) {
    if (std::exchange(buffer->may_pend, false)) --expected_;
  }

  void add_use(Buffer* buffer, Ticket point, bool open) {
    for (BufferUse* use = buffer->uses; use != nullptr; use = use->next) {
      if (use->point.stream != point.stream) continue;
      use->point = point;
      use->open |= open;
      return;
    }
    buffer->uses = uses_.create(point, open, buffer->uses);
  }
  void drop_uses(Buffer* buffer) {
    while (BufferUse* use = buffer->uses) {
      buffer->uses = use->next;
      uses_.destroy(use);
    }
  }

 private:
  UnifiedAllocator* const allocator_;
  std::atomic<std::uint64_t>& last_id_;
  Slab<Buffer> buffers_;
  Slab<BufferUse> uses_;
  std::size_t expected_ = 0;  // buffers that may have to wait
  PointerMap<Buffer> by_address_;
};

}  // namespace tenon::unified
