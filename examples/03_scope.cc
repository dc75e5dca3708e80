// A training loop whose temporaries go at the end of each step, and a result that outlives its
// step.
#include <cstdio>
#include <cstring>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/scopes/with_scope.h"

namespace {

// Any code that asks the thread's current allocator gets a scope's memory without knowing of
// scopes.
tenon::DataPtr activation(std::size_t floats, float value) {
  tenon::DataPtr block =
      tenon::current_allocator(tenon::Device{})->allocate(floats * sizeof(float));
  auto* data = static_cast<float*>(block.get());
  for (std::size_t i = 0; i < floats; ++i) data[i] = value;
  return block;
}

}  // namespace

int main() {
  tenon::Allocator& upstream = *tenon::get_default_cpu_allocator();
  tenon::DataPtr loss;
  for (int step = 0; step < 100; ++step) {
    loss = tenon::with_scope(upstream, [&] {
      std::vector<tenon::DataPtr> activations;
      for (std::size_t layer = 1; layer <= 12; ++layer)
        activations.push_back(activation(layer * 10'000, static_cast<float>(layer)));
      return activation(1, 1.0f / static_cast<float>(step + 1));  // outlives the scope
    });
  }
  const tenon::ScopePoolStats stats = tenon::scope_pool_of(upstream)->stats();
  std::printf("loss %.2f after %llu scopes\n", *static_cast<const float*>(loss.get()),
              static_cast<unsigned long long>(stats.scopes));
  std::printf("most in use %s, held %s, requests to malloc %llu\n",
              tenon::format_byte_size(stats.high_water_bytes).c_str(),
              tenon::format_byte_size(stats.reserved_bytes).c_str(),
              static_cast<unsigned long long>(stats.upstream_calls));
  std::printf("the loss keeps %s of a chunk\n", tenon::format_byte_size(stats.kept_bytes).c_str());
  return stats.upstream_calls < 10 && *static_cast<const float*>(loss.get()) == 0.01f ? 0 : 1;
}
