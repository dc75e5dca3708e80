#include "tenon/memory/host/host_allocator.h"

namespace tenon {

// --- fork(2): every lock is held while it happens, in the usual order.

void HostAllocator::before_fork() {
  if (decay_thread_ != nullptr) decay_thread_->before_fork();
  mutex_.lock();
  for (const auto& heap : heaps_) heap->lock.lock();
  for (const auto& store : stores_)
    if (store != nullptr) store->before_fork();
  accounts_.before_fork();
}

void HostAllocator::unlock_after_fork() {
  accounts_.after_fork();
  for (const auto& store : stores_)
    if (store != nullptr) store->after_fork();
  for (const auto& heap : heaps_) heap->lock.unlock();
  mutex_.unlock();
}

void HostAllocator::after_fork_in_parent() {
  unlock_after_fork();
  if (decay_thread_ != nullptr) decay_thread_->after_fork_in_parent();
}

// Only the calling thread is left.
void HostAllocator::after_fork_in_child() {
  for (const auto& heap : heaps_) {
    if (heap->owner.load(std::memory_order_relaxed) == thread_mark()) continue;
    heap->owner.store(nullptr, std::memory_order_relaxed);
    heap->lock.forget_owner();
  }
  unlock_after_fork();
  if (decay_thread_ != nullptr) decay_thread_->after_fork_in_child();
}

}  // namespace tenon
