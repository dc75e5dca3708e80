// Pools that a program keeps apart, by the names of PyTorch's torch.cuda.MemPool.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tenon/memory/gpu/private_pool.h"
#include "tenon/memory/registry.h"

namespace tenon {

// What is allocated while the pool is in use comes from its own memory and goes back there. The
// memory is a PrivatePool's, or what `allocator` of the caller's gives.
//
// Requires: backend or allocator outlive the pool, and the pool its blocks. Thread-safe.
class MemPool {
 public:
  explicit MemPool(Backend& backend) { own_.emplace(backend).allow_release(); }
  explicit MemPool(DeviceAllocator& allocator) : given_(&allocator) {}
  MemPool(const MemPool&) = delete;
  MemPool& operator=(const MemPool&) = delete;

  // No other pool of the process has it; the first number is PyTorch's for pools of the program.
  std::pair<std::uint64_t, std::uint64_t> id() const { return {0, id_}; }
  DeviceAllocator& allocator() { return given_ != nullptr ? *given_ : *own_; }
  Device device() { return allocator().device(); }
  // 1, and 1 for each UseMemPool that lives.
  int use_count() const { return 1 + uses_.load(std::memory_order_relaxed); }
  std::vector<SegmentInfo> snapshot() { return allocator().snapshot(); }
  // Gives back what is free; so does empty_cache of the allocator.
  void release() { allocator().empty_cache(); }

 private:
  friend class UseMemPool;
  static std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }

  std::optional<PrivatePool> own_;
  DeviceAllocator* const given_ = nullptr;
  const std::uint64_t id_ = next_id();
  std::atomic<int> uses_{0};
};

// torch.cuda.use_mem_pool: makes the pool current for its device on this thread, until it ends.
// Nests as AllocatorGuard does.
class UseMemPool {
 public:
  explicit UseMemPool(MemPool& pool) : pool_(pool), guard_(pool.device(), pool.allocator()) {
    pool_.uses_.fetch_add(1, std::memory_order_relaxed);
  }
  ~UseMemPool() { pool_.uses_.fetch_sub(1, std::memory_order_relaxed); }
  UseMemPool(const UseMemPool&) = delete;
  UseMemPool& operator=(const UseMemPool&) = delete;

 private:
  MemPool& pool_;
  const AllocatorGuard guard_;
};

}  // namespace tenon
