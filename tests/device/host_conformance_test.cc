#include "device/backend_conformance.h"
#include "tenon/base/byte_size.h"
#include "tenon/device/host/host_backend.h"

namespace tenon {
namespace {

const auto kHosts = ::testing::Values(
    BackendCase{.name = "host", .make = [] { return std::make_shared<HostBackend>(); }},
    BackendCase{.name = "host_without_cache", .make = [] {
                  return std::make_shared<HostBackend>(HostOptions{.cache_bytes = 0});
                }},
    BackendCase{.name = "host_with_a_limit",
                .make = [] {
                  return std::make_shared<HostBackend>(HostOptions{.limit_bytes = 256 * kMiB});
                },
                .capacity_bytes = 256 * kMiB});

INSTANTIATE_TEST_SUITE_P(Host, BackendConformance, kHosts, case_name);
INSTANTIATE_TEST_SUITE_P(Host, VirtualMemoryConformance, kHosts, case_name);

}  // namespace
}  // namespace tenon
