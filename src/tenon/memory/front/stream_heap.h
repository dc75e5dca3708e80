// What the front keeps for one stream, whatever the policy.
#pragma once

#include <atomic>

#include "tenon/base/biased_lock.h"
#include "tenon/device/device.h"
#include "tenon/memory/front/stream_counters.h"

namespace tenon {

class DeviceAllocator;

// Note [Biased heaps]: a heap belongs to the thread that last allocated from it, and its lock is
// biased to that thread (base/biased_lock.h), so the common path locks by two plain stores. Another
// thread that frees a block pushes it onto a lock-free list (a Treiber stack), and the owner takes
// the whole list at its next allocation. Growth, release and questions about all heaps lock them
// one at a time, in order of stream id. A thread that holds the lock takes only locks below it (the
// backend's, the peak board's, a plan's), and those of other heaps only under the growth mutex.
class alignas(64) StreamHeap {
 public:
  StreamHeap(DeviceAllocator& allocator, Stream stream) : allocator_(allocator), stream_(stream) {}
  StreamHeap(const StreamHeap&) = delete;
  StreamHeap& operator=(const StreamHeap&) = delete;

  DeviceAllocator& allocator() const { return allocator_; }
  Stream stream() const { return stream_; }

  // The calling thread is the one that allocates here from now on.
  void adopt() { user_.store(thread_mark(), std::memory_order_relaxed); }
  bool is_owned_by_this_thread() const {
    return user_.load(std::memory_order_relaxed) == thread_mark();
  }

  // --- Blocks that other threads have freed. `link` is the block's own link.
  template <typename Handle>
  void push_remote_free(Handle block, Handle& link) {
    void* head = remote_frees_.load(std::memory_order_relaxed);
    do {
      link = static_cast<Handle>(head);
    } while (!remote_frees_.compare_exchange_weak(head, block, std::memory_order_release,
                                                  std::memory_order_relaxed));
  }
  bool has_remote_frees() const {
    return remote_frees_.load(std::memory_order_relaxed) != nullptr;
  }
  // Releases them in the order in which they came. Requires: the lock.
  template <typename Heap>
  static void drain_remote_frees(Heap& heap) {
    using Handle = typename Heap::Handle;
    if (!heap.has_remote_frees()) [[likely]] return;
    auto block = static_cast<Handle>(
        heap.remote_frees_.exchange(nullptr, std::memory_order_acquire));
    Handle in_order = nullptr;  // the stack gives the last first
    while (block != nullptr) {
      const Handle next = Heap::link_of(block);
      Heap::link_of(block) = in_order;
      in_order = block;
      block = next;
    }
    while (in_order != nullptr) {
      const Handle next = Heap::link_of(in_order);
      heap.release(in_order);
      in_order = next;
    }
  }

  mutable BiasedLock lock;  // of all that the heap has, but what is atomic or constant
  StreamCounters counters;

 private:
  DeviceAllocator& allocator_;
  const Stream stream_;
  std::atomic<const void*> user_{nullptr};
  alignas(64) std::atomic<void*> remote_frees_{nullptr};
};

}  // namespace tenon
