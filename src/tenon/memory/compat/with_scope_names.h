// The scope document's one call in its own spelling: withScope([&] { ... }).
#pragma once

#include <utility>

#include "tenon/memory/scopes/with_scope.h"

// Not reproduced: the rest is TypeScript. TensorPool's acquire and release are SizeClassPool's.
namespace tenon {

// with_scope over the thread's current allocator of the host.
template <typename F>
decltype(auto) withScope(F&& f) {
  return with_scope(std::forward<F>(f));
}

}  // namespace tenon
