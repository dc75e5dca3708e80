// The layout hash of the shipped traces: the same in every run and on every machine. A change of a
// policy's placement changes its hashes, and must be meant; scripts/layout_hashes.py writes them.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tenon/lab/replayer.h"
#include "tenon/trace/load.h"

namespace tenon {
namespace {

const std::string kTraces = std::string(TENON_SOURCE_DIR) + "/data/traces/";

const nlohmann::json& golden_hashes() {
  static const nlohmann::json kHashes =
      nlohmann::json::parse(std::ifstream(kTraces + "layout_hashes.json"));
  return kHashes;
}

std::string hash_of(const Workload& workload, const std::string& policy, std::uint64_t lag_ns) {
  ReplaySetup setup;
  setup.policy = policy;
  setup.lag_ns = lag_ns;
  return fmt::format("{:016x}", replay(workload, setup).layout_hash);
}

// These two move memory between addresses and streams by what the device has finished, so their
// layout depends on the lag (and on a real device, on its speed). The others' does not.
bool depends_on_lag(const std::string& policy) {
  return policy == "unified" || policy == "stitched";
}

class LayoutHashes : public ::testing::TestWithParam<std::string> {};

TEST_P(LayoutHashes, AreThoseOfEveryMachine) {
  const Workload workload(load_traces(kTraces + GetParam() + ".csv.zst").front());
  for (const Policy& policy : policies()) {
    if (policy.name == "null") continue;  // it places nothing
    SCOPED_TRACE(policy.name);
    const std::string expected = golden_hashes().at(GetParam()).at(policy.name);
    EXPECT_EQ(hash_of(workload, policy.name, 5'000'000), expected);
    if (depends_on_lag(policy.name)) continue;
    EXPECT_EQ(hash_of(workload, policy.name, 0), expected);
    EXPECT_EQ(hash_of(workload, policy.name, 20'000'000), expected);
  }
}

std::vector<std::string> hashed_traces() {
  std::vector<std::string> names;
  for (const auto& [name, hashes] : golden_hashes().items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, LayoutHashes, ::testing::ValuesIn(hashed_traces()),
                         [](const auto& trace) { return trace.param; });

}  // namespace
}  // namespace tenon
