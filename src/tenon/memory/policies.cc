#include "tenon/memory/policies.h"

#include <fmt/format.h>

#include "tenon/base/error.h"
#include "tenon/memory/null/null_allocator.h"
#include "tenon/memory/system/system_allocator.h"
#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {

const std::vector<Policy>& policies() {
  using Made = std::unique_ptr<DeviceAllocator>;
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
      {"unified", "pooled buffers over few large heaps, with watermarks; memory never stays with a stream",
       "PyTorch's MPS allocator, MLX",
       [](Backend& backend, const Options& options) -> Made {
         UnifiedOptions unified;
         unified.limit_bytes = options.limit_bytes;
         return std::make_unique<UnifiedAllocator>(backend, unified);
       }},
  };
  return kPolicies;
}

const Policy& find_policy(std::string_view name) {
  std::string known;
  for (const Policy& policy : policies()) {
    if (policy.name == name) return policy;
    known += (known.empty() ? "" : ", ") + policy.name;
  }
  throw InvalidArgument(fmt::format("\"{}\" is no policy: the policies are {}", name, known));
}

std::unique_ptr<DeviceAllocator> make_policy(std::string_view name, Backend& backend,
                                             const PolicyOptions& options) {
  return find_policy(name).make(backend, options);
}

}  // namespace tenon
