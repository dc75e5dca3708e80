// What the programs of this folder share: each is an ordinary program with one bug, run under
// guard. "made here", "freed here" and the like mark the lines that the report must name.
#pragma once

#include "tenon/memory/adaptors/guard_adaptor.h"
#include "tenon/memory/adaptors/page_guard_allocator.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/memory/tag.h"

namespace tenon {

inline constexpr Device kHost{DeviceType::kCpu, 0};

// Runs `program` with a guard as the thread's allocator for host memory; the first report ends it.
template <typename Program>
int run_guarded(Program&& program, GuardOptions options = {}) {
  options.abort_on_damage = true;
  GuardAdaptor<Allocator> guard(*get_default_cpu_allocator(), options);
  const AllocatorGuard current(kHost, guard);
  program();
  return 0;
}

// The same with pages that fault.
template <typename Program>
int run_page_guarded(Program&& program) {
  PageGuardAllocator guard;
  const AllocatorGuard current(kHost, guard);
  program();
  return 0;
}

inline Allocator& allocator() { return *current_allocator(kHost); }

}  // namespace tenon
