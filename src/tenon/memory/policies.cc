#include "tenon/memory/policies.h"

#include <type_traits>
#include <utility>

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

bool grows_by_shares(const Backend& backend, const PolicyOptions& options) {
  return options.grows_by_shares || !backend.limits().has_virtual_memory;
}

Made make_expandable(Backend& backend, const PolicyOptions& options) {
  return std::make_unique<ExpandableAllocator>(backend, parse_caching_settings(options.conf),
                                               options.limit_bytes);
}

Made make_caching(Backend& backend, const PolicyOptions& options) {
  CachingSettings settings = parse_caching_settings(options.conf);
  settings.oldest_segment_first = options.oldest_segment_first;
  if (settings.expandable_segments) return make_expandable(backend, options);
  return std::make_unique<CachingAllocator>(backend, settings, options.limit_bytes);
}

// An option: which policies use it, and how to take it back. True: it was given.
struct OptionUse {
  const char* name;
  bool Policy::*used;
  bool (*clear)(PolicyOptions&);
};

template <auto kOption>
bool clear(PolicyOptions& options) {
  return std::exchange(options.*kOption, {}) != std::decay_t<decltype(options.*kOption)>{};
}

constexpr OptionUse kOptionUses[] = {
    {"conf", &Policy::uses_conf, clear<&PolicyOptions::conf>},
    {"limit_bytes", &Policy::uses_limit, clear<&PolicyOptions::limit_bytes>},
    {"plan", &Policy::needs_plan, clear<&PolicyOptions::plan>},
    {"grows_by_shares", &Policy::uses_shares, clear<&PolicyOptions::grows_by_shares>},
    {"oldest_segment_first", &Policy::uses_segment_order,
     clear<&PolicyOptions::oldest_segment_first>},
    {"page_bytes", &Policy::uses_page, clear<&PolicyOptions::page_bytes>},
};

}  // namespace

const std::vector<Policy>& policies() {
  using Options = PolicyOptions;
  static const std::vector<Policy> kPolicies = {
      {.name = "null",
       .summary = "does nothing: the replayer's own cost, the floor of every ns figure",
       .answers_to = "-",
       .make = [](Backend& backend, const Options&) -> Made {
         return std::make_unique<NullAllocator>(backend);
       },
       .uses_limit = false},
      {.name = "system",
       .summary = "each block straight from the driver",
       .answers_to = "cudaMalloc, malloc",
       .make = [](Backend& backend, const Options& options) -> Made {
         return std::make_unique<SystemAllocator>(backend, options.limit_bytes);
       }},
      {.name = "host",
       .summary = "the default for host memory: thread-local bins over large extents, decay",
       .answers_to = "c10's CPU allocator, mimalloc",
       .make = [](Backend& backend, const Options& options) -> Made {
         return std::make_unique<HostAllocator>(backend, options.limit_bytes);
       }},
      {.name = "buddy",
       .summary = "binary buddies over chunks, one instance per stream",
       .answers_to = "place/buddy allocators",
       .make = [](Backend& backend, const Options& options) -> Made {
         return std::make_unique<BuddyAllocator>(backend, BuddyConfig{}, options.limit_bytes);
       }},
      {.name = "pool",
       .summary = "best fit, split, coalesce over growing chunks, one instance per stream",
       .answers_to = "memory pools (RMM, MemoryPool)",
       .make = [](Backend& backend, const Options& options) -> Made {
         PoolConfig pool;
         pool.grows_by_shares = grows_by_shares(backend, options);
         return std::make_unique<PoolAllocator>(backend, pool, options.limit_bytes);
       },
       .uses_shares = true},
      {.name = "caching",
       .summary =
         "size-binned, stream-ordered segments: PyTorch's constants, settings and figures",
       .answers_to = "PyTorch's CUDA caching allocator",
       .make = make_caching,
       .limits_itself = true,
       .uses_conf = true,
       .uses_segment_order = true},
      {.name = "expandable",
       .summary = "the same over growable virtual ranges, by PyTorch's rules",
       .answers_to = "PyTorch's expandable_segments:True",
       .make = make_expandable,
       .limits_itself = true,
       .uses_conf = true},
      {.name = "unified",
       .summary =
         "pooled buffers over few large heaps, with ids, scalars, watermarks and callbacks",
       .answers_to = "PyTorch's MPS allocator, MLX",
       .make = [](Backend& backend, const Options& options) -> Made {
         UnifiedOptions unified;
         unified.limit_bytes = options.limit_bytes;
         if (grows_by_shares(backend, options)) unified.grow_by_shares();
         return std::make_unique<UnifiedAllocator>(backend, unified);
       },
       .uses_shares = true},
      {.name = "stitched",
       .summary = "physical pages moved between holes: Tenon's own, the default on a GPU",
       .answers_to = "GMLake (ASPLOS 2024)",
       .make = [](Backend& backend, const Options& options) -> Made {
         StitchedSettings stitched;
         if (options.page_bytes != 0) stitched.page_bytes = options.page_bytes;
         return std::make_unique<StitchedAllocator>(backend, stitched,
                                                    parse_caching_settings(options.conf),
                                                    options.limit_bytes);
       },
       .uses_conf = true,
       .uses_page = true},
      {.name = "arena",
       .summary =
         "bounded stacks of buffers of fixed size classes; the fastest, for repeating sizes",
       .answers_to = "scope pools",
       .make = [](Backend& backend, const Options& options) -> Made {
         ArenaOptions arena;
         arena.limit_bytes = options.limit_bytes;
         return std::make_unique<ArenaAllocator>(backend, arena);
       }},
      {.name = "plan",
       .summary =
         "offsets computed from a recording, checked as they are used, with a live fallback",
       .answers_to = "static plans (STAlloc)",
       .make = [](Backend& backend, const Options& options) -> Made {
         return std::make_unique<PlanAllocator>(backend, options.plan, options.limit_bytes);
       },
       .needs_plan = true},
  };
  return kPolicies;
}

const Policy& find_policy(std::string_view name) {
  std::string known;
  for (const Policy& policy : policies()) {
    if (policy.name == name) return policy;
    known += (known.empty() ? "" : ", ") + policy.name;
  }
  raise<InvalidArgument>("\"{}\" is no policy: the policies are {}", one_line(name), known);
}

void check_options(const Policy& policy, const PolicyOptions& options) {
  PolicyOptions given = options;
  for (const OptionUse& option : kOptionUses) {
    if (policy.*option.used || !option.clear(given)) continue;
    std::string users;
    for (const Policy& other : policies())
      if (other.*option.used) users += (users.empty() ? "" : ", ") + other.name;
    raise<InvalidArgument>("policy {} does not use the option {}: leave it out, or take "
                           "one of {}", policy.name, option.name, users);
  }
}

PolicyOptions options_for(const Policy& policy, const PolicyOptions& options) {
  PolicyOptions used = options;
  for (const OptionUse& option : kOptionUses)
    if (!(policy.*option.used)) static_cast<void>(option.clear(used));
  return used;
}

std::unique_ptr<DeviceAllocator> make_policy(std::string_view name, Backend& backend,
                                             const PolicyOptions& options) {
  const Policy& policy = find_policy(name);
  check_options(policy, options);
  return policy.make(backend, options);
}

}  // namespace tenon
