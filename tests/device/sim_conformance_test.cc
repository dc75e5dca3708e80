#include "device/backend_conformance.h"
#include "tenon/base/byte_size.h"
#include "tenon/device/sim/sim_backend.h"

namespace tenon {
namespace {

BackendCase sim_case(std::string name, const SimOptions& options) {
  return {.name = std::move(name),
          .make = [options] { return std::make_shared<SimBackend>(options); },
          .capacity_bytes = options.capacity_bytes <= kGiB ? options.capacity_bytes : 0};
}

const auto kSims = ::testing::Values(
    sim_case("fake", {}),
    sim_case("fake_mapped_once", {.lag_ns = 1'000'000, .can_map_twice = false}),
    sim_case("fake_checked", {.lag_ns = 1'000'000, .check_order = true}),
    sim_case("real", {.capacity_bytes = kGiB, .lag_ns = 1'000'000, .real_memory = true}),
    sim_case("real_unified",
             {.capacity_bytes = kGiB, .page_granularity = 64 * kKiB, .real_memory = true,
              .unified = true}));

INSTANTIATE_TEST_SUITE_P(Sim, BackendConformance, kSims, case_name);
INSTANTIATE_TEST_SUITE_P(Sim, VirtualMemoryConformance, kSims, case_name);

}  // namespace
}  // namespace tenon
