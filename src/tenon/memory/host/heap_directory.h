// All heaps and stores of one host allocator, and which thread has which heap.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tenon/memory/host/accounts.h"
#include "tenon/memory/host/local_heap.h"
#include "tenon/memory/host/region_store.h"

namespace tenon::host {

// Heaps and stores live as long as the directory: a thread that ends leaves its heap, and the next
// thread that needs one adopts it. Thread-safe. Its mutex is taken before any other lock of the
// allocator.
class HeapDirectory {
 public:
  HeapDirectory(HostAllocator& allocator, Backend& backend, Accounts& accounts,
                std::uint64_t limit_bytes)
      : allocator_(allocator), backend_(backend), accounts_(accounts), limit_bytes_(limit_bytes) {}

  // A heap for the calling thread, which owns it from now on: one that a thread left behind, or a
  // new one. Throws std::bad_alloc with nothing changed.
  LocalHeap& adopt(std::uint32_t stream_key, Stream stream);
  // The calling thread, the heap's owner, will not use it again.
  void abandon(LocalHeap& heap);

  // All there are now.
  struct Parts {
    std::vector<LocalHeap*> heaps;
    std::vector<RegionStore*> stores;
  };
  Parts parts() const;

  // Each heap, with its lock held.
  template <typename Visit>
  void for_each_heap(Visit&& visit) const {
    const std::lock_guard lock(mutex_);
    for (const auto& heap : heaps_) {
      const std::lock_guard heap_lock(heap->lock);
      visit(*heap);
    }
  }
  template <typename Visit>
  void for_each_store(Visit&& visit) const {
    const std::lock_guard lock(mutex_);
    for (const auto& store : stores_)
      if (store != nullptr) visit(*store);
  }

  // Around fork(2): every lock is held while it happens, in the usual order. In the child only the
  // calling thread is left.
  void before_fork();
  enum class Process : bool { kParent, kChild };
  void after_fork(Process process);

 private:
  LocalHeap& add_heap(RegionStore& store);
  [[gnu::cold]] RegionStore& store_for(std::uint32_t stream_key, Stream stream);

  HostAllocator& allocator_;
  Backend& backend_;
  Accounts& accounts_;
  const std::uint64_t limit_bytes_;
  mutable std::mutex mutex_;                          // guards the two lists
  std::vector<std::unique_ptr<RegionStore>> stores_;  // by stream key; may have gaps
  std::vector<std::unique_ptr<LocalHeap>> heaps_;     // owned by a thread or abandoned
};

}  // namespace tenon::host
