#include "tenon/memory/placement/arena_allocator.h"

#include "tenon/base/error.h"

namespace tenon {

ArenaAllocator::ArenaAllocator(Backend& backend, const ArenaOptions& options)
    : PlacementAllocator(backend, options, options.limit_bytes) {
  if (options.max_per_size == 0)
    throw InvalidArgument("the arena must keep at least one buffer of each size, not 0");
}

std::string ArenaAllocator::advice() const {
  return "its free buffers were given back already: a policy that splits and merges blocks needs "
         "less, such as stitched";
}

}  // namespace tenon
