#include "tenon/memory/placement/pool_allocator.h"

#include "tenon/base/error.h"

namespace tenon {

PoolAllocator::PoolAllocator(Backend& backend, PoolConfig config, std::uint64_t limit_bytes)
    : PlacementAllocator("pool", backend, config, limit_bytes) {
  if (config.pool_bytes == 0 || config.pool_bytes > kMaxRequestBytes)
    raise<InvalidArgument>("pool: a pool size of {} bytes is not from 1 to {}", config.pool_bytes,
                           kMaxRequestBytes);
}

}  // namespace tenon
