// Idle memory, fork and questions of a host allocator.
#include <algorithm>

#include "tenon/memory/host/host_allocator.h"

namespace tenon {

using host::RegionStore;
using host::HeapDirectory;
using host::large_block_of;
using host::LocalHeap;
using host::Released;
using host::Slot;

// --- Idle memory.

void HostAllocator::empty_cache() {
  Released released(&observers_);
  release_idle(released);
}

std::uint64_t HostAllocator::trim() {
  empty_cache();
  return backend_.trim();
}

// What no block is in goes back: from the heaps of all threads to their stores, and from there to
// the driver. Requires: the caller holds no heap's lock. Throws DeviceError when the driver refuses
// a region; the rest then stays.
void HostAllocator::release_idle(Released& released) {
  const auto [heaps, stores] = heaps_.parts();
  for (LocalHeap* heap : heaps) {
    const std::lock_guard lock(heap->lock);
    heap->trim(released);
  }
  for (RegionStore* store : stores) {
    store->release_free_regions(released);
    store->purge();
  }
}

// One look around of the decay thread. Returns whether another one is needed.
bool HostAllocator::decay() {
  Released released(&observers_);
  HeapDirectory::Parts all;
  try {
    all = heaps_.parts();
  } catch (const std::bad_alloc&) {
    return true;
  }
  const auto& [heaps, stores] = all;
  for (LocalHeap* heap : heaps) {
    const std::lock_guard lock(heap->lock);
    if (heap->has_become_idle()) heap->trim(released);
  }
  for (RegionStore* store : stores) store->decay(released);
  const bool more = backend_.release_idle();
  return reserved_bytes() != 0 || more;
}

// --- fork(2).

void HostAllocator::before_fork() {
  if (decay_thread_ != nullptr) decay_thread_->before_fork();
  raw_table().before_fork();
  heaps_.before_fork();
}

void HostAllocator::after_fork(HeapDirectory::Process process) {
  heaps_.after_fork(process);
  raw_table().after_fork();
  if (decay_thread_ == nullptr) return;
  if (process == HeapDirectory::Process::kParent)
    decay_thread_->after_fork_in_parent();
  else
    decay_thread_->after_fork_in_child();
}

// --- Questions.

AllocatorStats HostAllocator::stats() const {
  AllocatorStats out = accounts_.stats();
  heaps_.for_each_heap([&](LocalHeap& heap) { heap.account.add_share(out); });
  accounts_.board().set_peaks(out);
  out.active = out.allocation;
  out.active_bytes = out.allocated_bytes;
  return out;
}

void HostAllocator::reset_peak_stats() {
  accounts_.change([](AllocatorStats& stats) { reset_peaks(stats); });
  heaps_.for_each_heap([](LocalHeap& heap) { heap.account.reset_peaks(); });
  accounts_.board().reset_peaks();
}

std::uint64_t HostAllocator::largest_free_bytes() const {
  std::uint64_t largest = 0;
  heaps_.for_each_store([&](const RegionStore& store) {
    largest = std::max(largest, store.largest_free_bytes());
  });
  return largest;
}

std::size_t HostAllocator::usable_size(const DataPtr& data) const {
  if (data == nullptr) return 0;
  if (const Block* block = large_block_of(data.get_context())) return block->size;
  return static_cast<const Slot*>(data.get_context())->span->block_bytes();
}

std::size_t HostAllocator::raw_usable_size(const void* data) const {
  if (const Slot* slot = raw_blocks_.find_small(data)) return slot->span->block_bytes();
  const Block* block = raw_blocks_.find_large(data);
  return block != nullptr ? block->size : 0;
}

std::uint64_t HostAllocator::layout_offset(const DataPtr& data) const {
  if (const Block* block = large_block_of(data.get_context())) return block->offset;
  const auto* slot = static_cast<const Slot*>(data.get_context());
  return slot->span->block->offset +
         static_cast<std::uint64_t>(static_cast<char*>(slot->data) - slot->span->data);
}

void HostAllocator::check_invariants() const {
  heaps_.for_each_store([](const RegionStore& store) { store.check_invariants(); });
  heaps_.for_each_heap([](const LocalHeap& heap) { heap.check_invariants(); });
}

}  // namespace tenon
