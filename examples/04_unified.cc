// Memory that host and device share: buffers with ids and shapes, scalars, events, watermarks. Runs
// on the simulated device, so it needs no GPU.
#include <cstdio>
#include <memory>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/compat/mlx.h"
#include "tenon/memory/unified/unified_allocator.h"

namespace {

// Registered by class, told of everything that every unified allocator does.
class Counter : public tenon::UnifiedAllocatorCallback {
 public:
  void on_buffer_event(void*, tenon::MemoryEvent event) override {
    recycled += event == tenon::MemoryEvent::kRecycled;
  }
  static inline int recycled = 0;
};
TENON_REGISTER_UNIFIED_CALLBACK(counter, Counter);

}  // namespace

int main() {
  tenon::SimOptions options;
  options.capacity_bytes = 4 * tenon::kGiB;
  options.recommended_working_set_bytes = tenon::kGiB;
  options.real_memory = true;
  options.unified = true;
  options.lag_ns = 1'000'000;
  tenon::SimBackend device(options);
  tenon::UnifiedAllocator allocator(device);
  const auto by_mlx = tenon::mlx(allocator);  // the same by other names

  tenon::DataPtr x = allocator.allocate(6 * sizeof(float));
  allocator.set_buffer_shape(x.get(), std::vector<std::int64_t>{2, 3});
  const tenon::BufferInfo buffer = allocator.describe(x.get());
  std::printf("buffer %llu: %llu bytes asked for, %llu handed out, %zu dimensions\n",
              static_cast<unsigned long long>(buffer.id),
              static_cast<unsigned long long>(buffer.requested_bytes),
              static_cast<unsigned long long>(buffer.size_bytes),
              allocator.buffer_shape(x.get()).size());

  // The device fills the buffer; the host waits for it, and then reads the same bytes.
  const tenon::Stream stream = tenon::current_stream(device.device());
  device.fill(x.get(), 0, 6 * sizeof(float), stream);
  device.queue_work(stream);
  const void* buffers[] = {x.get()};
  allocator.record_events(buffers);
  allocator.wait_for_events(buffers);
  const float first = *static_cast<const float*>(buffer.host);

  const float scale = 0.5f;
  const tenon::DataPtr scalar = allocator.alloc_scalar_buffer_with_value(&scale, sizeof scale);
  std::printf("x[0] = %g, scale = %g\n", first, *static_cast<const float*>(scalar.get()));

  // Above the high watermark: a cache above the allocator is asked to let go.
  allocator.limits().watermarks().set_high_ratio(0.8);
  auto cache = std::make_unique<tenon::DataPtr>(allocator.allocate(600 * tenon::kMiB));
  allocator.pressure_callbacks().add([&](std::uint64_t wanted) -> std::uint64_t {
    std::printf("memory is short: %s wanted\n", tenon::format_byte_size(wanted).c_str());
    cache.reset();
    return 600 * tenon::kMiB;
  });
  tenon::DataPtr large = allocator.allocate(700 * tenon::kMiB);
  large.clear();
  large = allocator.allocate(700 * tenon::kMiB);
  try {
    const tenon::DataPtr more = allocator.allocate(700 * tenon::kMiB);
    return 1;
  } catch (const tenon::OutOfMemory& error) {
    std::printf("%s\n", error.what());
  }
  std::printf("active %s, cached %s\n",
              tenon::format_byte_size(by_mlx.get_active_memory()).c_str(),
              tenon::format_byte_size(by_mlx.get_cache_memory()).c_str());
  return cache == nullptr && Counter::recycled > 0 && first == 0 ? 0 : 1;
}
