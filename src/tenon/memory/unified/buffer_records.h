// Where the records of buffers live, and how a bare pointer leads to one.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "tenon/base/pointer_map.h"
#include "tenon/base/reserve.h"
#include "tenon/base/slab.h"
#include "tenon/memory/unified/buffer.h"

namespace tenon::unified {

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
