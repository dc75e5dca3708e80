// `stitched` where the host runs far ahead of the device.
#include <gtest/gtest.h>

#include "tenon/lab/replayer.h"
#include "tenon/trace/load.h"

namespace tenon {
namespace {

std::uint64_t stall_ns(const Workload& workload, std::uint64_t lag_ns) {
  ReplaySetup setup;
  setup.policy = "stitched";
  setup.lag_ns = lag_ns;
  return replay(workload, setup).ledger.stall_ns;
}

// While there are addresses that were never mapped, no stale mapping is worth a wait. On these
// traces the stall at 500 ms was 15 and 190 times the one at no lag without this rule.
TEST(StitchedLagTest, AHostThatRunsAheadDoesNotWaitForMappings) {
  for (const std::string name : {"llama1b_ckpt", "multistream_prefetch"}) {
    const auto traces = load_traces(TENON_SOURCE_DIR "/data/traces/" + name + ".csv.zst");
    const Workload workload(traces.at(0));
    const std::uint64_t without = stall_ns(workload, 0);
    EXPECT_LT(stall_ns(workload, 20'000'000), 2 * without) << name;
    EXPECT_LT(stall_ns(workload, 500'000'000), 2 * without) << name;
  }
}

}  // namespace
}  // namespace tenon
