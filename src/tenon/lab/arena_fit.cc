#include "tenon/lab/arena_fit.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/scopes/scope_arena.h"
#include "tenon/memory/scopes/with_scope.h"

namespace tenon {
namespace {

constexpr std::uint64_t kPage = 4096;

// What a scope over chunks of this size does with the events. The memory is not touched.
ArenaFit try_chunks(std::span<const StepEvent> events, std::uint64_t alignment,
                    std::uint64_t chunk_bytes) {
  const auto memory = make_policy("system", host_backend(), {});
  ScopeOptions options;
  options.alignment = alignment;
  options.first_chunk_bytes = options.max_chunk_bytes = chunk_bytes;
  const auto pool = ScopePool::make(*memory, options);
  with_scope(pool, [&](ScopeArena& arena) {
    std::unordered_map<std::uint32_t, DataPtr> blocks;
    for (const StepEvent& event : events) {
      if (event.kind == StepEvent::Kind::kAlloc && event.size_bytes > 0)
        blocks[event.block] = arena.allocate(event.size_bytes);
      else if (event.kind == StepEvent::Kind::kFree)
        blocks.erase(event.block);
    }
  });
  return {chunk_bytes, pool->stats().reserved_bytes, pool->last_report().high_water_bytes};
}

}  // namespace

ArenaFit fit_arena(std::span<const StepEvent> events, std::uint64_t alignment) {
  const std::uint64_t all = std::max(align_up(bump_bytes(events, alignment), kPage), kPage);
  ArenaFit best = try_chunks(events, alignment, all);
  // From the whole down to a sixteenth, in steps of an eighth or so.
  for (std::uint64_t size = all - all / 8; size >= std::max(all / 16, kPage); size -= size / 8) {
    const ArenaFit fit = try_chunks(events, alignment, align_up(size, kPage));
    if (fit.reserved_bytes < best.reserved_bytes) best = fit;
    if (size / 8 == 0) break;
  }
  return best;
}

}  // namespace tenon
