// Which heaps of which host allocators belong to the calling thread.
#pragma once

#include <cstdint>

#include "tenon/memory/host/local_heap.h"

namespace tenon {

class HostAllocator;

namespace host {

// A heap of a thread: the allocator and the stream that it is of.
struct ThreadHeap {
  std::uint64_t key = 0;  // HostThread::key_of; 0: none
  LocalHeap* heap = nullptr;
};

}  // namespace host

// All static: it speaks of the calling thread. Allocators are known by a number that is never used
// again, so what a thread remembers of one that is gone matches nothing. When a thread ends its
// heaps go back to those allocators that still live.
class HostThread {
 public:
  // For the shortest way to the heap used last: one comparison, and no question whose lock it is.
  static std::uint64_t key_of(std::uint64_t allocator_id, std::uint32_t stream_key) {
    return allocator_id << 32 | stream_key;
  }
  static bool has_own_heap(std::uint64_t key) { return own_.key == key; }
  // Requires: there is one, of an allocator that lives. The address comes from the thread's own
  // pointer, not from the block that is freed. A store whose address is known late makes the
  // processor run later loads of the same place twice.
  static host::LocalHeap& own_heap() { return *own_.heap; }
  // Requires: the heap lives.
  static bool is_own_heap(const host::LocalHeap& heap) {
    const host::LocalHeap* own = own_.heap;
    asm("" : "+r"(own));  // see own_heap: the compiler would take the one for the other
    return own == &heap;
  }
  // The thread's heap, or null.
  static host::LocalHeap* find_heap(std::uint64_t allocator_id, std::uint32_t stream_key) {
    const std::uint64_t key = key_of(allocator_id, stream_key);
    if (last_.key == key) [[likely]] return last_.heap;
    return find_slowly(key);
  }
  static void keep_heap(std::uint64_t allocator_id, std::uint32_t stream_key,
                        host::LocalHeap& heap);
  // Any heap of that allocator, as long as it is the one used last; or null.
  static host::LocalHeap* last_heap_in(std::uint64_t allocator_id) {
    return last_.key >> 32 == allocator_id ? last_.heap : nullptr;
  }
  // True from the thread's last destructors on: heaps must be abandoned after each use.
  static bool has_ended() { return ended_; }

  static std::uint64_t new_id();
  // An allocator has been made, and is about to end: in between, forks and ends of threads find it.
  static void enrol(std::uint64_t allocator_id, HostAllocator& allocator);
  static void withdraw(std::uint64_t allocator_id);
  // From here on a fork takes the locks of the process's host allocators, raw blocks, reclaimers
  // and observers, so that the child finds them free. A host allocator calls it, too.
  static void watch_forks();

 private:
  class Heaps;
  class Forks;

  static void remember(const host::ThreadHeap& heap);
  static host::LocalHeap* find_slowly(std::uint64_t key);
  static Heaps& heaps();

  // Constant initialisation and no destructor: reading them costs no guard.
  // The heap that the thread used last; the same, if its lock is biased to the thread.
  TENON_FAST_THREAD_LOCAL static inline constinit thread_local host::ThreadHeap last_;
  TENON_FAST_THREAD_LOCAL static inline constinit thread_local host::ThreadHeap own_;
  static inline constinit thread_local bool ended_ = false;
};

}  // namespace tenon
