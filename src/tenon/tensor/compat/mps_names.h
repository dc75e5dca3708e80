// Unified memory as the memory-model document names it: at::mps::IMPSAllocator and its callback.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "tenon/memory/compat/mps.h"
#include "tenon/memory/unified/callbacks.h"
#include "tenon/tensor/int_list.h"

// Buffers are named by the address of their first byte. sizes come as the document has them; what
// the functions do is said in memory/compat/mps.h.
namespace at::mps {

using ssize_t = std::int64_t;
using id_t = std::uint64_t;

// Only names, over an allocator that must outlive this. Thread-safe.
class IMPSAllocator {
 public:
  explicit IMPSAllocator(tenon::UnifiedAllocator& allocator)
      : allocator_(allocator), mps_(allocator) {}

  tenon::DataPtr allocate(std::size_t n) const { return allocator_.allocate(n); }
  void emptyCache() const { mps_.empty_cache(); }
  void freeInactiveBuffers() const { mps_.free_inactive_buffers(); }

  ssize_t getUnalignedBufferSize(const void* ptr) const {
    return static_cast<ssize_t>(mps_.get_unaligned_buffer_size(ptr));
  }
  // Valid until the buffer is freed or its shape is set again, as the document's is.
  tenon::IntList getBufferShape(const void* ptr) const { return allocator_.buffer_shape(ptr); }
  id_t getBufferId(const void* ptr) const { return mps_.get_buffer_id(ptr); }
  void setBufferShape(const void* ptr, tenon::IntList shape) const {
    mps_.set_buffer_shape(ptr, {shape.begin(), shape.size()});
  }

  bool isSharedBuffer(const void* ptr) const { return mps_.is_shared_buffer(ptr); }
  bool isSharedStorageSupported() const { return mps_.is_shared_storage_supported(); }
  // Where the host sees the buffer, and how many hold it.
  std::pair<const void*, std::uint32_t> getSharedBufferPtr(const void* ptr) const {
    const tenon::SharedBufferPtr shared = mps_.get_shared_buffer_ptr(ptr);
    return {shared.host, shared.retain_count};
  }
  tenon::DataPtr allocScalarBufferWithValue(void* value, std::size_t size) const {
    return mps_.alloc_scalar_buffer_with_value(value, size);
  }

  std::size_t getTotalAllocatedMemory() const { return mps_.get_total_allocated_memory(); }
  std::size_t getCurrentAllocatedMemory() const { return mps_.get_current_allocated_memory(); }
  std::size_t getDriverAllocatedMemory() const { return mps_.get_driver_allocated_memory(); }
  std::size_t getRecommendedMaxMemory() const { return mps_.get_recommended_max_memory(); }

  void setLowWatermarkRatio(double ratio) const { mps_.set_low_watermark_ratio(ratio); }
  void setHighWatermarkRatio(double ratio) const { mps_.set_high_watermark_ratio(ratio); }
  ssize_t getLowWatermarkValue() const { return mps_.get_low_watermark_value(); }
  std::size_t getLowWatermarkLimit() const { return mps_.get_low_watermark_limit(); }
  std::size_t getHighWatermarkLimit() const { return mps_.get_high_watermark_limit(); }

  bool recordEvents(std::span<const void* const> buffers) const {
    return mps_.record_events(buffers);
  }
  bool waitForEvents(std::span<const void* const> buffers) const {
    return mps_.wait_for_events(buffers);
  }

 private:
  tenon::UnifiedAllocator& allocator_;
  mutable tenon::MpsInterface mps_;
};

// Hears of every change of a buffer (UnifiedAllocatorCallback).
class IMpsAllocatorCallback : public tenon::UnifiedAllocatorCallback {
 public:
  enum class EventType { ALLOCATED, RECYCLED, FREED, RELEASED, ALLOCATION_FAILED };
  virtual void executeMPSAllocatorCallback(void* ptr, EventType event) = 0;

  void on_buffer_event(void* data, tenon::UnifiedAllocatorCallback::EventType event) final {
    executeMPSAllocatorCallback(data, static_cast<EventType>(event));
  }
};

}  // namespace at::mps

#define REGISTER_MPS_ALLOCATOR_CALLBACK(name, callback_class) \
  TENON_REGISTER_UNIFIED_CALLBACK(name, callback_class)
