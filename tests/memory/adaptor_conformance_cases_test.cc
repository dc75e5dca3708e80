// The adaptors, each over the host policy, for the conformance suite of allocators.
#include <string_view>

#include "memory/allocator_conformance.h"
#include "memory/failure_adaptor.h"
#include "tenon/memory/adaptors/aligned_adaptor.h"
#include "tenon/memory/adaptors/fallback_adaptor.h"
#include "tenon/memory/adaptors/guard_adaptor.h"
#include "tenon/memory/adaptors/limit_adaptor.h"
#include "tenon/memory/adaptors/logging_adaptor.h"
#include "tenon/memory/adaptors/pressure_adaptor.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/adaptors/thread_safe_adaptor.h"
#include "tenon/memory/adaptors/tracking_adaptor.h"
#include "tenon/memory/host/host_allocator.h"

namespace tenon {
namespace {

using Parts = std::vector<std::unique_ptr<DeviceAllocator>>;

// Ends after the adaptor that stands on them, the outermost part first.
struct OwnedParts {
  explicit OwnedParts(Parts given) : parts(std::move(given)) {}
  ~OwnedParts() {
    while (!parts.empty()) parts.pop_back();
  }
  Parts parts;
};

// An adaptor with all that it stands on; the last part is the outermost. It adapts nothing, so it
// tests besides that adaptors compose.
class WithUpstreams final : private OwnedParts, public Adaptor<DeviceAllocator> {
 public:
  explicit WithUpstreams(Parts given)
      : OwnedParts(std::move(given)), Adaptor<DeviceAllocator>(*parts.back()) {}

 protected:
  std::string adaptor_name() const override { return "with_upstreams"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    return wrap(from_upstream(size_bytes, stream), size_bytes, stream);
  }
};

// Adds an adaptor of type A over the last part.
template <template <typename> class A, typename... Args>
void put_on(Parts& parts, Args&&... args) {
  DeviceAllocator& upstream = *parts.back();
  parts.push_back(std::make_unique<A<DeviceAllocator>>(upstream, std::forward<Args>(args)...));
}

ConformanceCase over_host(std::string name, std::function<void(Parts&, Backend&)> adapt) {
  ConformanceCase one;
  one.name = "host_" + std::move(name);
  one.alignment = 64;
  one.make = [adapt = std::move(adapt)](Backend& backend) {
    Parts parts;
    parts.push_back(std::make_unique<HostAllocator>(backend));
    adapt(parts, backend);
    return std::make_unique<WithUpstreams>(std::move(parts));
  };
  return one;
}

}  // namespace

std::vector<ConformanceCase> adaptor_cases() {
  std::vector<ConformanceCase> cases;
  const auto add = [&](std::string name, std::function<void(Parts&, Backend&)> adapt) {
    cases.push_back(over_host(std::move(name), std::move(adapt)));
    return &cases.back();
  };
  add("statistics", [](Parts& parts, Backend&) { put_on<StatisticsAdaptor>(parts); });
  add("logging",
      [](Parts& parts, Backend&) { put_on<LoggingAdaptor>(parts, [](std::string_view) {}); });
  add("tracking", [](Parts& parts, Backend&) { put_on<TrackingAdaptor>(parts, 2); });
  add("limit", [](Parts& parts, Backend&) { put_on<LimitAdaptor>(parts, kMaxRequestBytes); });
  add("failure", [](Parts& parts, Backend&) { put_on<FailureAdaptor>(parts); });
  add("pressure", [](Parts& parts, Backend&) { put_on<PressureAdaptor>(parts, 0); });
  add("thread_safe", [](Parts& parts, Backend&) { put_on<ThreadSafeAdaptor>(parts); });
  ConformanceCase* aligned =
      add("aligned", [](Parts& parts, Backend&) { put_on<AlignedAdaptor>(parts, 8192); });
  aligned->alignment = 8192;
  aligned->exact = false;
  ConformanceCase* guard = add("guard", [](Parts& parts, Backend&) {
    GuardOptions options;
    options.quarantine_bytes = 0;
    options.stack_depth = 2;
    options.on_damage = [](const GuardReport& report) { ADD_FAILURE() << report.to_string(); };
    put_on<GuardAdaptor>(parts, options);
  });
  guard->exact = false;
  guard->writes_memory = true;
  add("fallback", [](Parts& parts, Backend& backend) {
    put_on<LimitAdaptor>(parts, std::uint64_t{20} << 20);
    DeviceAllocator& first = *parts.back();
    parts.push_back(std::make_unique<HostAllocator>(backend));
    DeviceAllocator& second = *parts.back();
    parts.push_back(std::make_unique<FallbackAdaptor<DeviceAllocator>>(first, second));
  })->exact = false;
  return cases;
}

}  // namespace tenon
