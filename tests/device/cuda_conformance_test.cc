#include "device/backend_conformance.h"
#include "support/cuda_stand_in.h"
#include "tenon/base/byte_size.h"

namespace tenon {
namespace {

// A backend with its machine; what the suite provokes is refused before the driver hears of it.
BackendCase cuda_case(std::string name, std::string setup, std::uint64_t capacity_bytes = 0) {
  return {.name = std::move(name),
          .make = [setup]() -> std::shared_ptr<Backend> {
            auto machine = std::make_shared<testing::StandIn>(setup);
            CudaBackend* backend = machine->backend().release();
            return {backend, [machine](CudaBackend* gone) { delete gone; }};
          },
          .capacity_bytes = capacity_bytes};
}

const auto kMachines = ::testing::Values(cuda_case("eager", ""), cuda_case("lazy", "lazy=1,seed=3"),
                                         cuda_case("second_seed", "lazy=1,seed=4"),
                                         cuda_case("small", "capacity=268435456", 256 * kMiB));
const auto kPlainMachine =
    ::testing::Values(cuda_case("without_virtual_memory", "virtual_memory=0"));

INSTANTIATE_TEST_SUITE_P(CudaStandIn, BackendConformance, kMachines, case_name);
INSTANTIATE_TEST_SUITE_P(CudaStandIn, VirtualMemoryConformance, kMachines, case_name);
INSTANTIATE_TEST_SUITE_P(CudaPlain, BackendConformance, kPlainMachine, case_name);

}  // namespace
}  // namespace tenon
