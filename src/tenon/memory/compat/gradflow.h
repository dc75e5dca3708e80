// The memory pool's design document in its own spelling: gradflow::MemoryPool.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "tenon/memory/allocator.h"
#include "tenon/memory/compat/memory_pool.h"
#include "tenon/memory/registry.h"

// Not reproduced: `MemoryPool::BlockInfo` and the other private members; the Metal allocator.
namespace gradflow {

// What a pool takes its chunks from. One's own overrides the two functions.
class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;
  virtual void* allocate(std::size_t size) = 0;  // null, or throws std::bad_alloc: no memory
  virtual void deallocate(void* ptr) = 0;
  // Every block starts at a multiple of this power of two.
  virtual std::size_t alignment() const { return tenon::MemoryPool::kMinAlignment; }
};

// The eight statistics.
using MemoryPoolStats = tenon::MemoryPoolStats;

// tenon::MemoryPool, with the document's names beside its own; over a DeviceAllocator or over any
// tenon::Allocator.
class MemoryPool : public tenon::MemoryPool {
 public:
  static constexpr std::size_t kDefaultPoolSize = tenon::MemoryPool::kDefaultPoolBytes;
  static constexpr std::size_t kMinBlockSize = tenon::MemoryPool::kMinBlockBytes;

  using tenon::MemoryPool::MemoryPool;
  // Throws what tenon::MemoryPool throws.
  explicit MemoryPool(std::shared_ptr<DeviceAllocator> allocator,
                      std::size_t pool_size = kDefaultPoolSize)
      : tenon::MemoryPool(adapted(std::move(allocator)), pool_size) {}
  // Throws InvalidArgument.
  explicit MemoryPool(std::nullptr_t, std::size_t pool_size = kDefaultPoolSize)
      : tenon::MemoryPool(nullptr, pool_size) {}

  // statistics().
  MemoryPoolStats getStatistics() const { return statistics(); }

 private:
  // A DeviceAllocator as tenon::MemoryPool wants it.
  class Upstream final : public tenon::Allocator {
   public:
    explicit Upstream(std::shared_ptr<DeviceAllocator> device) : device_(std::move(device)) {}
    tenon::DataPtr allocate(std::size_t size_bytes) override {
      return tenon::DataPtr::with_deleter(
          device_->allocate(size_bytes), [device = device_](void* p) { device->deallocate(p); },
          tenon::Device{});
    }
    std::size_t alignment() const override { return device_->alignment(); }
    void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
      default_copy_data(dest, src, size_bytes);
    }

   private:
    std::shared_ptr<DeviceAllocator> device_;
  };

  static std::shared_ptr<tenon::Allocator> adapted(std::shared_ptr<DeviceAllocator> device) {
    return device == nullptr ? nullptr : std::make_shared<Upstream>(std::move(device));
  }
};

// The allocator of host memory that is registered now.
inline std::shared_ptr<DeviceAllocator> getDefaultCpuAllocator() {
  class Cpu final : public DeviceAllocator {
   public:
    void* allocate(std::size_t size) override { return allocator_.raw_allocate(size); }
    void deallocate(void* ptr) override { allocator_.raw_deallocate(ptr); }
    std::size_t alignment() const override { return allocator_.alignment(); }

   private:
    tenon::Allocator& allocator_ = *tenon::get_allocator(tenon::DeviceType::kCpu);
  };
  return std::make_shared<Cpu>();
}

}  // namespace gradflow
