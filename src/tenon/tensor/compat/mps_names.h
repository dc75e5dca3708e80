// Unified memory as the memory-model document names it: at::mps::IMPSAllocator and its callback.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "tenon/memory/unified/callbacks.h"
#include "tenon/memory/unified/unified_allocator.h"
#include "tenon/tensor/int_list.h"

// A buffer is named by the address of its first byte; any other pointer throws InvalidPointer.
// Sizes are in bytes.
namespace at::mps {

using ssize_t = std::int64_t;
using id_t = std::uint64_t;

// Only names, over an allocator that must outlive this. Thread-safe.
class IMPSAllocator {
 public:
  explicit IMPSAllocator(tenon::UnifiedAllocator& allocator) : allocator_(allocator) {}

  tenon::DataPtr allocate(std::size_t n) const { return allocator_.allocate(n); }
  void emptyCache() const { allocator_.empty_cache(); }
  // What other streams have finished with can be used again.
  void freeInactiveBuffers() const { allocator_.free_inactive_buffers(); }

  ssize_t getUnalignedBufferSize(const void* ptr) const {  // as requested
    return static_cast<ssize_t>(allocator_.describe(ptr).requested_bytes);
  }
  // Valid until the buffer is freed or its shape is set again, as the document's is.
  tenon::IntList getBufferShape(const void* ptr) const { return allocator_.buffer_shape(ptr); }
  // The buffer's number, which it keeps while it is cached.
  id_t getBufferId(const void* ptr) const { return allocator_.describe(ptr).id; }
  void setBufferShape(const void* ptr, tenon::IntList shape) const {
    allocator_.set_buffer_shape(ptr, {shape.begin(), shape.size()});
  }

  // Whether the host can reach the buffer, and whether it can reach any.
  bool isSharedBuffer(const void* ptr) const {
    return allocator_.describe(ptr).storage == tenon::unified::Storage::kShared;
  }
  bool isSharedStorageSupported() const { return allocator_.supports_shared_storage(); }
  // Where the host sees the buffer (null: nowhere), and how many hold it: its owner and each stream
  // whose use is not over.
  std::pair<const void*, std::uint32_t> getSharedBufferPtr(const void* ptr) const {
    const tenon::BufferInfo shared = allocator_.describe(ptr);
    return {shared.host, 1 + shared.uses};
  }
  tenon::DataPtr allocScalarBufferWithValue(void* value, std::size_t size) const {
    return allocator_.alloc_scalar_buffer_with_value(value, size);
  }

  // Of heaps; of buffers in use; of all programs on the device; the recommended working set.
  std::size_t getTotalAllocatedMemory() const { return allocator_.reserved_bytes(); }
  std::size_t getCurrentAllocatedMemory() const {
    return static_cast<std::size_t>(allocator_.stats().allocated_bytes[0].current);
  }
  std::size_t getDriverAllocatedMemory() const {
    const tenon::BackendMemory memory = allocator_.backend().memory();
    return memory.total_bytes - memory.free_bytes;
  }
  std::size_t getRecommendedMaxMemory() const { return marks().recommended_bytes(); }

  // Watermarks has the rules. The value: bytes left below the mark, negative above it.
  void setLowWatermarkRatio(double ratio) const { marks().set_low_ratio(ratio); }
  void setHighWatermarkRatio(double ratio) const { marks().set_high_ratio(ratio); }
  ssize_t getLowWatermarkValue() const {
    return marks().low_headroom_bytes(allocator_.reserved_bytes());
  }
  std::size_t getLowWatermarkLimit() const { return marks().low_limit_bytes(); }
  std::size_t getHighWatermarkLimit() const { return marks().high_limit_bytes(); }

  bool recordEvents(std::span<const void* const> buffers) const {
    return allocator_.record_events(buffers);
  }
  bool waitForEvents(std::span<const void* const> buffers) const {
    return allocator_.wait_for_events(buffers);
  }

 private:
  tenon::Watermarks& marks() const { return allocator_.limits().watermarks(); }

  tenon::UnifiedAllocator& allocator_;
};

// Hears of every change of a buffer (UnifiedAllocatorCallback).
class IMpsAllocatorCallback : public tenon::UnifiedAllocatorCallback {
 public:
  enum class EventType {
    ALLOCATED = static_cast<int>(tenon::MemoryEvent::kAllocated),
    RECYCLED = static_cast<int>(tenon::MemoryEvent::kRecycled),
    FREED = static_cast<int>(tenon::MemoryEvent::kFreed),
    RELEASED = static_cast<int>(tenon::MemoryEvent::kReleased),
    ALLOCATION_FAILED = static_cast<int>(tenon::MemoryEvent::kAllocationFailed)
  };
  virtual void executeMPSAllocatorCallback(void* ptr, EventType event) = 0;

  void on_buffer_event(void* data, tenon::MemoryEvent event) final {
    executeMPSAllocatorCallback(data, static_cast<EventType>(event));
  }
};

}  // namespace at::mps

#define REGISTER_MPS_ALLOCATOR_CALLBACK(name, callback_class) \
  TENON_REGISTER_UNIFIED_CALLBACK(name, callback_class)
