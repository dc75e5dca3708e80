// A unified allocator by the names of PyTorch's MPS allocator. Complexity: as UnifiedAllocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {

// What the host sees of a shared buffer.
struct SharedBufferPtr {
  const void* host = nullptr;       // null: the buffer is private
  std::uint64_t offset_bytes = 0;   // of the buffer in its heap
  std::uint32_t retain_count = 0;   // 1 for its owner, and 1 for each stream whose use is not over
};

// Only names: each function is one call of the allocator, which must outlive this. A buffer is
// named by the address of its first byte; any other pointer throws InvalidPointer. Thread-safe.
class MpsInterface {
 public:
  explicit MpsInterface(UnifiedAllocator& allocator) : allocator_(allocator) {}

  // --- Memory.
  DataPtr alloc_scalar_buffer_with_value(const void* value, std::size_t size_bytes) {
    return allocator_.alloc_scalar_buffer_with_value(value, size_bytes);
  }
  // Cached memory goes back to the driver; what other streams have finished with can be used again.
  // The second returns bytes.
  void empty_cache() { allocator_.empty_cache(); }
  std::uint64_t free_inactive_buffers() { return allocator_.free_inactive_buffers(); }

  // --- Buffers.
  std::size_t get_unaligned_buffer_size(const void* data) const {  // as requested
    return allocator_.describe(data, "get_unaligned_buffer_size").requested_bytes;
  }
  std::size_t get_buffer_size(const void* data) const {  // as handed out
    return allocator_.describe(data, "get_buffer_size").size_bytes;
  }
  // The buffer's number, which it keeps while it is cached.
  std::uint64_t get_buffer_id(const void* data) const {
    return allocator_.describe(data, "get_buffer_id").id;
  }
  // As set_buffer_shape set it; empty before.
  std::vector<std::int64_t> get_buffer_shape(const void* data) const {
    return allocator_.describe(data, "get_buffer_shape").shape;
  }
  // Kept with the buffer.
  void set_buffer_shape(const void* data, std::span<const std::int64_t> shape) {
    allocator_.set_buffer_shape(data, shape);
  }
  // Whether the host can reach it.
  bool is_shared_buffer(const void* data) const {
    return allocator_.describe(data, "is_shared_buffer").storage == unified::Storage::kShared;
  }
  // Whether buffers can be shared: one memory for host and device, or options.shared_memory is set.
  bool is_shared_storage_supported() const { return allocator_.supports_shared_storage(); }
  // Where the host sees the buffer.
  SharedBufferPtr get_shared_buffer_ptr(const void* data) const {
    const BufferInfo buffer = allocator_.describe(data, "get_shared_buffer_ptr");
    return {buffer.host, buffer.offset_bytes, 1 + buffer.uses};
  }

  // --- Events.
  bool record_events(std::span<const void* const> buffers) {
    return allocator_.record_events(buffers);
  }
  // As UnifiedAllocator::wait_for_events.
  bool wait_for_events(std::span<const void* const> buffers) {
    return allocator_.wait_for_events(buffers);
  }

  // --- How much memory, in bytes.
  std::uint64_t get_total_allocated_memory() const { return allocator_.reserved_bytes(); }  // heaps
  std::uint64_t get_current_allocated_memory() const {
    return static_cast<std::uint64_t>(allocator_.stats().allocated_bytes[0].current);
  }
  std::uint64_t get_driver_allocated_memory() const {  // by all programs on the device
    const BackendMemory memory = allocator_.backend().memory();
    return memory.total_bytes - memory.free_bytes;
  }
  // The device's recommended working set.
  std::uint64_t get_recommended_max_memory() const {
    return allocator_.backend().limits().recommended_working_set_bytes;
  }

  // --- Watermarks (Watermarks has the rules).
  void set_low_watermark_ratio(double ratio) { marks().set_low_ratio(ratio); }
  void set_high_watermark_ratio(double ratio) { marks().set_high_ratio(ratio); }
  double get_low_watermark_ratio() const { return marks().low_ratio(); }
  double get_high_watermark_ratio() const { return marks().high_ratio(); }
  std::int64_t get_low_watermark_value() const {  // bytes left below the mark; negative above
    return marks().low_headroom_bytes(allocator_.reserved_bytes());
  }
  // As get_low_watermark_value, of the high mark.
  std::int64_t get_high_watermark_value() const {
    return marks().high_headroom_bytes(allocator_.reserved_bytes());
  }
  // The marks in bytes; Watermarks::kNoLimit where they are off.
  std::uint64_t get_low_watermark_limit() const { return marks().low_limit_bytes(); }
  std::uint64_t get_high_watermark_limit() const { return marks().high_limit_bytes(); }

 private:
  Watermarks& marks() const { return allocator_.limits().watermarks(); }

  UnifiedAllocator& allocator_;
};

// The names for an allocator.
inline MpsInterface mps(UnifiedAllocator& allocator) { return MpsInterface(allocator); }

}  // namespace tenon
