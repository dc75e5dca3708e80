// The command with and without a CUDA device, by way of the stand-in driver.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include <array>
#include <string>

#include "support/command.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;

// With what went to stderr in `out`.
Outcome with_driver(const std::string& driver, const std::string& setup,
                    const std::string& arguments) {
  Outcome outcome = testing::tenon_command(
      arguments, fmt::format("TENON_CUDA_DRIVER='{}' TENON_CUDA_STAND_IN='{}'", driver, setup));
  outcome.out += outcome.err;
  return outcome;
}

TEST(CudaCommand, InfoShowsTheDevices) {
  const Outcome info = with_driver(TENON_CUDA_STAND_IN_LIBRARY, "devices=2", "info");
  EXPECT_EQ(info.status, 0);
  EXPECT_THAT(info.out, HasSubstr("cuda:0    Tenon stand-in 0, 8 GiB, compute 9.0"));
  EXPECT_THAT(info.out, HasSubstr("cuda:1    Tenon stand-in 1"));
  EXPECT_THAT(info.out, HasSubstr("8 GiB free"));
  EXPECT_THAT(info.out, Not(HasSubstr("cuda      none:")));
}

TEST(CudaCommand, InfoSaysInOneLineWhyThereIsNoDevice) {
  for (const auto& [driver, setup, reason] :
       {std::array<std::string, 3>{"libno_driver.so.1", "", "no NVIDIA driver"},
        {TENON_CUDA_STAND_IN_LIBRARY, "devices=0", "CUDA_ERROR_NO_DEVICE"},
        {TENON_CUDA_STAND_IN_LIBRARY, "version=10020", "too old"}}) {
    const Outcome info = with_driver(driver, setup, "info");
    EXPECT_EQ(info.status, 0);
    EXPECT_THAT(info.out, HasSubstr("cuda      none: "));
    EXPECT_THAT(info.out, HasSubstr(reason));
    EXPECT_THAT(info.out, HasSubstr("sim:0"));
  }
}

TEST(CudaCommand, ReplaysOnTheDeviceBesideTheSimulation) {
  const std::string trace = TENON_SOURCE_DIR "/data/traces/multistream_prefetch.csv.zst";
  const Outcome replay =
      with_driver(TENON_CUDA_STAND_IN_LIBRARY, "capacity=68719476736",
                  "replay --device cuda --policy stitched,caching --passes 1 --json " + trace);
  ASSERT_EQ(replay.status, 0) << replay.out;
  const auto results = nlohmann::json::parse(replay.out);
  ASSERT_EQ(results.size(), 2u);
  for (const auto& result : results) {
    const auto& hardware = result["hardware"];
    // One allocator: what it does does not depend on what device it stands on.
    EXPECT_EQ(hardware["reserved_peak_bytes"], result["simulated"]["reserved_peak_bytes"]);
    for (const char* call : {"create", "map", "allocate"})
      EXPECT_EQ(hardware["ledger"]["calls"][call], result["simulated"]["ledger"]["calls"][call]);
    EXPECT_GT(hardware["ledger"]["stall_ns"], 0);
    EXPECT_GT(hardware["warm_ns_per_event"], 0);
  }
}

TEST(CudaCommand, ReplayWithoutADeviceSaysWhy) {
  const std::string trace = TENON_SOURCE_DIR "/data/traces/multistream_prefetch.csv.zst";
  const Outcome replay = with_driver("libno_driver.so.1", "", "replay --device cuda " + trace);
  EXPECT_EQ(replay.status, 2);
  EXPECT_THAT(replay.out, HasSubstr("--device cuda: no NVIDIA driver"));
  EXPECT_EQ(with_driver("libno_driver.so.1", "", "replay --device cpu " + trace).status, 2);
}

}  // namespace
}  // namespace tenon
