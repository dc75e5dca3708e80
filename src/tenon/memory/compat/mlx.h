// A unified allocator by the names of MLX. Complexity: as UnifiedAllocator.
#pragma once

#include <cstdint>

#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {

// Only names: each function is one call of the allocator, which must outlive this. Setters return
// the limit that was in force before. Bytes throughout. Thread-safe.
class MlxInterface {
 public:
  explicit MlxInterface(UnifiedAllocator& allocator) : allocator_(allocator) {}

  // The limits of MemoryLimits. set_wired_limit throws InvalidArgument above the working set.
  std::uint64_t set_memory_limit(std::uint64_t bytes) {
    return allocator_.limits().set_memory_limit(bytes);
  }
  // As set_memory_limit.
  std::uint64_t set_cache_limit(std::uint64_t bytes) { return allocator_.set_cache_limit(bytes); }
  // As set_memory_limit.
  std::uint64_t set_wired_limit(std::uint64_t bytes) {
    return allocator_.limits().set_wired_limit(bytes);
  }
  std::uint64_t get_active_memory() const {  // in buffers that are in use
    return static_cast<std::uint64_t>(allocator_.stats().allocated_bytes[0].current);
  }
  std::uint64_t get_peak_memory() const {  // the most that ever was
    return static_cast<std::uint64_t>(allocator_.stats().allocated_bytes[0].peak);
  }
  std::uint64_t get_cache_memory() const {  // held, but not in use
    const AllocatorStats now = allocator_.stats();
    return static_cast<std::uint64_t>(now.reserved_bytes[0].current -
                                      now.allocated_bytes[0].current);
  }
  // The peak becomes what is in use; cached memory goes back to the driver.
  void reset_peak_memory() { allocator_.reset_peak_stats(); }
  void clear_cache() { allocator_.empty_cache(); }

 private:
  UnifiedAllocator& allocator_;
};

// The names for an allocator.
inline MlxInterface mlx(UnifiedAllocator& allocator) { return MlxInterface(allocator); }

}  // namespace tenon
