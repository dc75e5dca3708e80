// The operators' vectors on each driver of Vulkan there is, under the validation layer.
#include <gmock/gmock.h>

#include "support/command.h"
#include "support/vulkan.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(VulkanCommand, EveryVectorAndGradientPassesOnEveryDriver) {
  for (const auto& driver : testing::vulkan_drivers()) {
    const auto outcome =
        testing::tenon_command("vectors " TENON_SOURCE_DIR "/data/vectors --grad --device vulkan:0",
                      "TENON_VULKAN_VALIDATION=1 VK_DRIVER_FILES=" + driver.file);
    EXPECT_EQ(outcome.status, 0) << driver.name;
    EXPECT_THAT(outcome.out, HasSubstr("344 passed, 0 failed")) << driver.name;
    EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("validation layer"))) << driver.name;
  }
}

}  // namespace
}  // namespace tenon
