#include "tenon/memory/policies.h"

#include <fmt/format.h>

#include "tenon/base/error.h"
#include "tenon/base/printable.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/gpu/expandable_allocator.h"
#include "tenon/memory/gpu/stitched_allocator.h"
#include "tenon/memory/host/host_allocator.h"
#include "tenon/memory/placement/arena_allocator.h"
#include "tenon/memory/placement/buddy_allocator.h"
#include "tenon/memory/placement/plan_allocator.h"
#include "tenon/memory/placement/pool_allocator.h"
#include "tenon/memory/system/null_allocator.h"
#include "tenon/memory/system/system_allocator.h"
#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {

namespace {

using Made = std::unique_ptr<DeviceAllocator>;

Made make_caching(Backend& backend, const PolicyOptions& options) {
  const CachingSettings settings = parse_caching_settings(options.conf);
  if (settings.expandable_segments)
    return std::make_unique<ExpandableAllocator>(backend, settings, options.limit_bytes);
  return std::make_unique<CachingAllocator>(backend, settings, options.limit_bytes);
}

Made make_expandable(Backend& backend, const PolicyOptions& options) {
  CachingSettings settings = parse_caching_settings(options.conf);
  settings.expandable_segments = true;
  return std::make_unique<ExpandableAllocator>(backend, settings, options.limit_bytes);
}

}  // namespace

const std::vector<Policy>& policies() {
  using Options = PolicyOptions;
  static const std::vector<Policy> kPolicies = {
      {"null", "does nothing: the replayer's own cost, the floor of every ns figure", "-",
       [](Backend& backend, const Options&) -> Made {
         return std::make_unique<NullAllocator>(backend);
       }},
      {"system", "each block straight from the driver", "cudaMalloc, malloc",
       [](Backend& backend, const Options&) -> Made {
         return std::make_unique<SystemAllocator>(backend);
       }},
      {"host", "the default for host memory: thread-local bins over large extents, decay",
       "c10's CPU allocator, mimalloc",
       [](Backend& backend, const Options& options) -> Made {
         return std::make_unique<HostAllocator>(backend, options.limit_bytes);
       }},
      {"buddy", "binary buddies over chunks, one instance per stream", "place/buddy allocators",
       [](Backend& backend, const Options& options) -> Made {
         return std::make_unique<BuddyAllocator>(backend, BuddyConfig{}, options.limit_bytes);
       }},
      {"pool", "best fit, split, coalesce over growing chunks, one instance per stream",
       "memory pools (RMM, MemoryPool)",
       [](Backend& backend, const Options& options) -> Made {
         return std::make_unique<PoolAllocator>(backend, PoolConfig{}, options.limit_bytes);
       }},
      {"caching", "size-binned, stream-ordered segments: PyTorch's constants, settings and figures",
       "PyTorch's CUDA caching allocator", make_caching, true},
      {"expandable", "the same over growable virtual ranges, by PyTorch's rules",
       "PyTorch's expandable_segments:True", make_expandable, true},
      {"unified",
       "pooled buffers over few large heaps, with ids, scalars, watermarks and callbacks",
       "PyTorch's MPS allocator, MLX",
       [](Backend& backend, const Options& options) -> Made {
         UnifiedOptions unified;
         unified.limit_bytes = options.limit_bytes;
         return std::make_unique<UnifiedAllocator>(backend, unified);
       }},
      {"stitched", "physical pages moved between holes: Tenon's own, the default on a GPU",
       "GMLake (ASPLOS 2024)",
       [](Backend& backend, const Options& options) -> Made {
         StitchedSettings stitched;
         if (options.page_bytes != 0) stitched.page_bytes = options.page_bytes;
         return std::make_unique<StitchedAllocator>(backend, stitched,
                                                    parse_caching_settings(options.conf),
                                                    options.limit_bytes);
       }},
      {"arena", "bounded stacks of buffers of fixed size classes; the fastest, for repeating sizes",
       "scope pools",
       [](Backend& backend, const Options& options) -> Made {
         ArenaOptions arena;
         arena.limit_bytes = options.limit_bytes;
         return std::make_unique<ArenaAllocator>(backend, arena);
       }},
      {"plan", "offsets computed from a recording, checked as they are used, with a live fallback",
       "static plans (STAlloc)",
       [](Backend& backend, const Options& options) -> Made {
         return std::make_unique<PlanAllocator>(backend, options.plan, options.limit_bytes);
       },
       false, true},
  };
  return kPolicies;
}

const Policy& find_policy(std::string_view name) {
  std::string known;
  for (const Policy& policy : policies()) {
    if (policy.name == name) return policy;
    known += (known.empty() ? "" : ", ") + policy.name;
  }
  throw InvalidArgument(fmt::format("\"{}\" is no policy: the policies are {}",
                                    one_line(name), known));
}

std::unique_ptr<DeviceAllocator> make_policy(std::string_view name, Backend& backend,
                                             const PolicyOptions& options) {
  return find_policy(name).make(backend, options);
}

}  // namespace tenon
