#include "device/backend_conformance.h"
#include "support/vulkan.h"

namespace tenon {
namespace {

std::vector<BackendCase> cases() {
  std::vector<BackendCase> made;
  for (const auto& driver : testing::vulkan_drivers())
    for (const bool staged : {false, true})
      made.push_back({.name = driver.name + (staged ? "_staged" : ""),
                      .make = [name = driver.name, staged]() -> std::shared_ptr<Backend> {
                        auto machine = std::make_shared<testing::Vulkan>(name);
                        VulkanBackend* backend =
                            machine->backend({.stage_always = staged}).release();
                        return {backend, [machine](VulkanBackend* gone) { delete gone; }};
                      }});
  return made;
}

INSTANTIATE_TEST_SUITE_P(Vulkan, BackendConformance, ::testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace tenon
