// with_scope(f): memory that goes when f is done, except for what f gives away. Throws what f
// throws, what the pool's upstream throws for the scope's memory, and std::bad_alloc. A scope
// belongs to the thread that began it. O(chunks + blocks) beside f.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "tenon/memory/registry.h"
#include "tenon/memory/scopes/scope_arena.h"

namespace tenon {

// A scope for as long as the object lives: its arena is the thread's current allocator for the
// device. Scopes nest, and must end on the thread that began them, the last begun first; an
// exception ends them like any block.
class Scope {
 public:
  explicit Scope(std::shared_ptr<ScopePool> pool);
  // The scope's allocator.
  ScopeArena& arena() { return arena_; }

 private:
  struct Parking {
    explicit Parking(const ScopePool& pool);
  } parking_;  // before the arena takes room, the scope around it lends what it has left
  ScopeArena arena_;
  AllocatorGuard guard_;
};

// The pool behind the thread's current allocator: of the scope around, or of that allocator itself.
std::shared_ptr<ScopePool> current_scope_pool(Device device);

// Runs f, as f(arena) or as f(), and returns what it returns. Blocks that f allocates through the
// arena or the thread's current allocator are temporary. Those that f returns, or other code still
// holds, stay valid until they are freed, and count as escapes (pool->last_report()).
template <typename F>
decltype(auto) with_scope(std::shared_ptr<ScopePool> pool, F&& f) {
  Scope scope(std::move(pool));
  if constexpr (std::is_invocable_v<F, ScopeArena&>)
    return std::forward<F>(f)(scope.arena());
  else
    return std::forward<F>(f)();
}

// Over an allocator, which keeps the scope's memory for the next one (scope_pool_of).
template <typename F>
decltype(auto) with_scope(Allocator& upstream, F&& f) {
  return with_scope(scope_pool_of(upstream), std::forward<F>(f));
}

// Over the thread's current allocator for the device.
template <typename F>
decltype(auto) with_scope(Device device, F&& f) {
  return with_scope(current_scope_pool(device), std::forward<F>(f));
}

// ... for the CPU.
template <typename F>
decltype(auto) with_scope(F&& f) {
  return with_scope(Device{}, std::forward<F>(f));
}

}  // namespace tenon
