#include "tenon/memory/placement/buddy_allocator.h"

#include <bit>

#include "tenon/base/error.h"
#include "tenon/memory/system/system_allocator.h"

namespace tenon {
namespace {

BuddyConfig checked(std::uint64_t initial_pool_bytes, std::uint64_t max_pool_bytes) {
  if (initial_pool_bytes == 0 || initial_pool_bytes > kMaxRequestBytes)
    raise<InvalidArgument>("buddy: an initial pool of {} bytes is not from 1 to {}",
                           initial_pool_bytes, kMaxRequestBytes);
  return {std::max(std::bit_ceil(initial_pool_bytes), kChunkStepBytes),
          max_pool_bytes};
}

DeviceAllocator& not_null(const std::unique_ptr<DeviceAllocator>& system) {
  if (system == nullptr)
    throw InvalidArgument("buddy: the system allocator is null; give one, for example system");
  return *system;
}

}  // namespace

BuddyChunks::BuddyChunks(DeviceAllocator& allocator, Stream stream, const BuddyConfig& config)
    : PlacementHeap(allocator, stream), config_(config), heap_(kChunkStepBytes) {}

BuddyAllocator::BuddyAllocator(std::unique_ptr<DeviceAllocator> system,
                               std::uint64_t initial_pool_bytes, std::uint64_t max_pool_bytes,
                               std::uint64_t limit_bytes)
    : PlacementAllocator("buddy", not_null(system).backend(),
                         checked(initial_pool_bytes, max_pool_bytes), limit_bytes,
                         std::move(system)) {}

BuddyAllocator::BuddyAllocator(Backend& backend, BuddyConfig config, std::uint64_t limit_bytes)
    : BuddyAllocator(std::make_unique<SystemAllocator>(backend), config.initial_pool_bytes,
                     config.max_pool_bytes, limit_bytes) {}

BuddyAllocator::~BuddyAllocator() = default;

}  // namespace tenon
