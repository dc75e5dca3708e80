// The backend that docs/embed.md has its readers write, taken from the page (tests/CMakeLists.txt).
#include "device/backend_conformance.h"
#include "paged_backend.h"

namespace tenon {
namespace {

const auto kPaged = ::testing::Values(BackendCase{
    .name = "paged",
    .make = [] { return std::make_shared<PagedBackend>(4ull << 30); },
    .capacity_bytes = 4ull << 30});

INSTANTIATE_TEST_SUITE_P(Page, BackendConformance, kPaged, case_name);
INSTANTIATE_TEST_SUITE_P(Page, VirtualMemoryConformance, kPaged, case_name);

}  // namespace
}  // namespace tenon
