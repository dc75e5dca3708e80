// The memory pool's design document in its own spelling: gradflow::MemoryPool.
#pragma once

#include <memory>

#include "tenon/memory/allocator.h"
#include "tenon/memory/compat/memory_pool.h"
#include "tenon/memory/registry.h"

// Not reproduced: `MemoryPool::BlockInfo` and the other private members; the Metal allocator.
namespace gradflow {

// Any allocator may stand behind a pool.
using DeviceAllocator = tenon::Allocator;
// The eight statistics.
using MemoryPoolStats = tenon::MemoryPoolStats;

// tenon::MemoryPool, with the document's names beside its own.
class MemoryPool : public tenon::MemoryPool {
 public:
  static constexpr std::size_t kDefaultPoolSize = tenon::MemoryPool::kDefaultPoolBytes;
  static constexpr std::size_t kMinBlockSize = tenon::MemoryPool::kMinBlockBytes;

  using tenon::MemoryPool::MemoryPool;
  // statistics().
  MemoryPoolStats getStatistics() const { return statistics(); }
};

// The allocator of host memory that is in use.
inline std::shared_ptr<DeviceAllocator> getDefaultCpuAllocator() {
  return {tenon::get_allocator(tenon::DeviceType::kCpu), [](DeviceAllocator*) {}};
}

}  // namespace gradflow
