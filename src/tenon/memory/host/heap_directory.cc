#include "tenon/memory/host/heap_directory.h"

#include <algorithm>

#include "tenon/base/biased_lock.h"

namespace tenon::host {

LocalHeap& HeapDirectory::adopt(std::uint32_t stream_key, Stream stream) {
  const std::lock_guard lock(mutex_);
  RegionStore& store = store_for(stream_key, stream);
  const auto left = std::find_if(heaps_.begin(), heaps_.end(), [&](const auto& heap) {
    return &heap->store() == &store && heap->owner.load(std::memory_order_relaxed) == nullptr;
  });
  LocalHeap& found = left == heaps_.end() ? add_heap(store) : **left;
  const std::lock_guard heap_lock(found.lock);
  found.lock.become_owner();
  found.owner.store(thread_mark(), std::memory_order_relaxed);
  return found;
}

LocalHeap& HeapDirectory::add_heap(RegionStore& store) {
  heaps_.push_back(std::make_unique<LocalHeap>(store));
  accounts_.board().add(heaps_.back()->account, [this](auto&& join) {
    const std::lock_guard lock(heaps_.front()->lock);
    join(heaps_.front()->account);
  });
  return *heaps_.back();
}

RegionStore& HeapDirectory::store_for(std::uint32_t stream_key, Stream stream) {
  if (stores_.size() <= stream_key) stores_.resize(stream_key + 1);
  if (stores_[stream_key] == nullptr)
    stores_[stream_key] =
        std::make_unique<RegionStore>(allocator_, backend_, accounts_, limit_bytes_, stream);
  return *stores_[stream_key];
}

// What goes back to the driver here is not reported: a lock of the thread directory may be held.
void HeapDirectory::abandon(LocalHeap& heap) {
  Released unreported(nullptr);
  {
    const std::lock_guard lock(heap.lock);
    heap.trim(unreported);
  }
  heap.lock.resign();
  const std::lock_guard lock(mutex_);
  heap.owner.store(nullptr, std::memory_order_relaxed);
}

HeapDirectory::Parts HeapDirectory::parts() const {
  const std::lock_guard lock(mutex_);
  Parts all;
  for (const auto& heap : heaps_) all.heaps.push_back(heap.get());
  for (const auto& store : stores_)
    if (store != nullptr) all.stores.push_back(store.get());
  return all;
}

void HeapDirectory::before_fork() {
  mutex_.lock();
  for (const auto& heap : heaps_) heap->lock.before_fork();
  for (const auto& store : stores_)
    if (store != nullptr) store->before_fork();
  accounts_.before_fork();
}

void HeapDirectory::after_fork(Process process) {
  accounts_.after_fork();
  for (const auto& store : stores_)
    if (store != nullptr) store->after_fork();
  for (const auto& heap : heaps_) {
    if (process == Process::kParent) {
      heap->lock.after_fork_in_parent();
      continue;
    }
    if (!heap->is_callers()) heap->owner.store(nullptr, std::memory_order_relaxed);
    heap->lock.after_fork_in_child();
  }
  mutex_.unlock();
}

}  // namespace tenon::host
