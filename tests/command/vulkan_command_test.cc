// The operators' vectors on each driver of Vulkan there is, under the validation layer.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/command.h"
#include "support/temporary.h"
#include "support/vulkan.h"
#include "vulkan_failing/failing_loader.h"

namespace tenon {
namespace {

using ::testing::ContainsRegex;
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

// The same as if the device had memory of its own.
TEST(VulkanCommand, EveryVectorAndGradientPassesInSeparateMemory) {
  for (const auto& driver : testing::vulkan_drivers()) {
    const auto outcome = testing::tenon_command(
        "vectors " TENON_SOURCE_DIR "/data/vectors --grad --device vulkan:0",
        "TENON_VULKAN_STAGE=1 TENON_VULKAN_VALIDATION=1 VK_DRIVER_FILES=" + driver.file);
    EXPECT_EQ(outcome.status, 0) << driver.name << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("344 passed, 0 failed")) << driver.name;
    EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("validation layer"))) << driver.name;
  }
}

// A text to train on, and what the command says of it.
class VulkanTrainCommand : public ::testing::Test {
 protected:
  VulkanTrainCommand() {
    std::ofstream text(folder_.path() + "/text");
    for (int i = 0; i < 60; ++i)
      text << "a bird in the hand is worth " << i % 7 << " in the bush\n";
  }
  testing::Outcome train(const std::string& more, const std::string& variables = "",
                         const std::string& driver = testing::vulkan_drivers().front().file) const {
    const std::string save = folder_.path() + "/model.safetensors";
    return testing::tenon_command(
        "train text " + folder_.path() + "/text --length 16 --layers 1 --width 16 --heads 2 " +
            "--batch 8 --epochs 1 --save " + save + " " + more,
        variables + " TENON_VULKAN_VALIDATION=1 VK_DRIVER_FILES=" + driver);
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(VulkanTrainCommand, TrainsToTheHostsLossAndWritesTheSameText) {
  const auto run = [&](const std::string& device) {
    const testing::Outcome trained = train("--json --device " + device);
    EXPECT_EQ(trained.status, 0) << trained.err;
    EXPECT_EQ(trained.err, "");
    const testing::Outcome written = testing::tenon_command(
        "generate " + folder_.path() + "/model.safetensors --temperature 0 --count 20 --device " +
            device,
        "VK_DRIVER_FILES=" + testing::vulkan_drivers().front().file);
    EXPECT_EQ(written.status, 0) << written.err;
    return std::pair(nlohmann::json::parse(trained.out), written.out);
  };
  const auto [host, host_text] = run("cpu");
  const auto [there, text] = run("vulkan:0");
  EXPECT_NEAR(there["final_loss"].get<double>(), host["final_loss"].get<double>(), 1e-3);
  EXPECT_EQ(there["driver_calls_after_step_2"], 0);
  EXPECT_GT(there["peak_bytes"], 0);
  EXPECT_EQ(text, host_text);
  EXPECT_EQ(run("vulkan").first["weights_hash"], there["weights_hash"]) << "to the bit";
}

TEST_F(VulkanTrainCommand, TrainsInSeparateMemoryToTheSameBits) {
  const auto run = [&](const std::string& variables) {
    const testing::Outcome trained = train("--json --device vulkan:0", variables);
    EXPECT_EQ(trained.status, 0) << trained.err;
    return nlohmann::json::parse(trained.out);
  };
  const auto separate = run("TENON_VULKAN_STAGE=1"), shared = run("");
  EXPECT_EQ(separate["weights_hash"], shared["weights_hash"]);
  EXPECT_EQ(separate["final_loss"], shared["final_loss"]);
  EXPECT_EQ(separate["driver_calls_after_step_2"], 0);
}

TEST_F(VulkanTrainCommand, TheReportCountsWhatTheHostComputesAndCopies) {
  const auto driver = testing::vulkan_drivers().back();
  if (driver.name != "swiftshader") GTEST_SKIP() << "every driver here has integers of 64 bits";
  const auto report = [&](const std::string& variables) {
    const testing::Outcome trained = train("--device vulkan:0", variables, driver.file);
    EXPECT_EQ(trained.status, 0) << trained.err;
    return trained.out;
  };
  const std::string separate = report("TENON_VULKAN_STAGE=1"), shared = report("");
  EXPECT_THAT(separate, ContainsRegex("where the device has no kernel: [a-z].* KiB copied\n"));
  EXPECT_THAT(shared, HasSubstr("where the device has no kernel: "));
  EXPECT_THAT(shared, Not(HasSubstr(" copied")));
  const auto weights = [](const std::string& text) {
    return text.substr(text.find("weights "), sizeof("weights 0123456789abcdef") - 1);
  };
  EXPECT_EQ(weights(separate), weights(shared));
  const testing::Outcome json =
      train("--json --device vulkan:0", "TENON_VULKAN_STAGE=1", driver.file);
  std::uint64_t copied_bytes = 0;
  const nlohmann::json counted = nlohmann::json::parse(json.out);
  for (const auto& of_operator : counted["host_calls"]) {
    EXPECT_GT(of_operator["calls"], 0);
    copied_bytes += of_operator["copied_bytes"].get<std::uint64_t>();
  }
  EXPECT_GT(copied_bytes, 0u);
}

// A limit, which a capture could not keep, has each step computed anew.
TEST_F(VulkanTrainCommand, CapturedStepsGiveTheBitsOfStepsThatAreNot) {
  const auto run = [&](const std::string& more) {
    const testing::Outcome trained = train("--device vulkan:0 " + more);
    EXPECT_EQ(trained.status, 0) << trained.err;
    return trained.out;
  };
  const auto weights = [](const std::string& report) {
    return report.substr(report.find("weights "), sizeof("weights 0123456789abcdef") - 1);
  };
  const std::string captured = run(""), plain = run("--memory-limit 1GiB");
  EXPECT_THAT(captured, HasSubstr("a step is captured and queued again"));
  EXPECT_THAT(captured, HasSubstr("driver calls after step 2: 0\n"));
  EXPECT_THAT(plain, Not(HasSubstr("captured")));
  EXPECT_EQ(weights(captured), weights(plain));
  EXPECT_NE(captured.find("weights "), std::string::npos);
}

TEST_F(VulkanTrainCommand, ALostDeviceLeavesTheLastSaveWhichGoesOnToTheSameWeights) {
  const auto weights_of = [](const testing::Outcome& run) {
    EXPECT_EQ(run.status, 0) << run.err;
    return nlohmann::json::parse(run.out)["weights_hash"];
  };
  const auto whole = weights_of(train("--json --device vulkan:0"));
  const std::string save = folder_.path() + "/model.safetensors";
  std::filesystem::remove(save);
  for (const std::string limit : {"", " --memory-limit 1GiB"}) {  // captured, and not
    const testing::Outcome lost =
        train("--json --device vulkan:0 --save-every 5" + limit,
              std::string("TENON_VULKAN_LOADER=" TENON_VULKAN_FAILING_LOADER " ") +
                  kLostOnceThereIs + "=" + save);
    EXPECT_EQ(lost.status, 1) << lost.out;
    EXPECT_EQ(lost.out, "");
    EXPECT_THAT(lost.err, HasSubstr("VK_ERROR_DEVICE_LOST"));
    EXPECT_THAT(lost.err, HasSubstr("--resume " + save));
    EXPECT_EQ(weights_of(train("--json --device vulkan:0 --resume " + save)), whole);
    std::filesystem::remove(save);
  }
}

TEST_F(VulkanTrainCommand, SaysWhatADeviceLacks) {
  const auto refusal = [&](const std::string& more) {
    const testing::Outcome run = train(more);
    EXPECT_EQ(run.status, 2) << more;
    EXPECT_EQ(run.out, "") << more;
    return run.err;
  };
  EXPECT_THAT(refusal("--json --device vulkan:99"), HasSubstr("there is no vulkan:99"));
  EXPECT_THAT(refusal("--json --device meta"),
              HasSubstr("--device meta: tensors are computed on cpu and on Vulkan"));
  EXPECT_THAT(refusal("--json --device vulkan:0 --allocator stitched"),
              HasSubstr("virtual memory"));
  EXPECT_THAT(refusal("--json --device nothing"), HasSubstr("\"nothing\" is no device"));
}

}  // namespace
}  // namespace tenon
