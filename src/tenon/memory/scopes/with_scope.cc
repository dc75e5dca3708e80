#include "tenon/memory/scopes/with_scope.h"

namespace tenon {

Scope::Parking::Parking(const ScopePool& pool) {
  auto* around = dynamic_cast<ScopeArena*>(guarded_allocator(pool.device()));
  if (around != nullptr && around->pool().get() == &pool) around->park();
}

Scope::Scope(std::shared_ptr<ScopePool> pool)
    : parking_(*pool), arena_(std::move(pool)), guard_(arena_.device(), arena_) {}

std::shared_ptr<ScopePool> current_scope_pool(Device device) {
  return scope_pool_of(*current_allocator(device));
}

}  // namespace tenon
