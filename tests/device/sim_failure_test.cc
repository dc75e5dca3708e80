#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"

namespace tenon {
namespace {

// A short life on a device in which every driver call occurs at least once. Each step says whether
// it worked; a step that failed is tried again, after a look at whether anything had changed.
class Life {
 public:
  explicit Life(SimBackend& sim) : sim_(sim) {}

  // Returns how many steps failed.
  int run() {
    int failures = 0;
    for (const auto& [name, step] : steps()) {
      const std::uint64_t used_before = sim_.used_bytes();
      if (attempt(step)) continue;
      ++failures;
      EXPECT_EQ(sim_.used_bytes(), used_before) << name;
      EXPECT_TRUE(attempt(step)) << name << " fails even when tried again";
    }
    EXPECT_EQ(sim_.used_bytes(), 0u);
    return failures;
  }

 private:
  using Step = std::function<bool()>;

  static bool attempt(const Step& step) {
    try {
      return step();
    } catch (const DeviceError&) {
      return false;
    }
  }

  std::vector<std::pair<const char*, Step>> steps() {
    constexpr std::uint64_t kPage = 2 * kMiB;
    const Stream stream{sim_.device(), 0};
    return {
        {"allocate", [&] { return (segment_ = sim_.allocate_segment(kMiB)).has_value(); }},
        {"reserve", [&] { return (range_ = sim_.reserve_address(4 * kPage)).has_value(); }},
        {"create", [&] { return (pages_ = sim_.create_pages(kPage)).has_value(); }},
        {"map", [&] { return sim_.map(range_->base, *pages_); }},
        {"map again", [&] { return sim_.map(range_->base + kPage, *pages_); }},
        {"set_access", [&] { return sim_.set_access(range_->base, 2 * kPage); }},
        {"queue", [this, stream] { return sim_.queue_work(stream), true; }},
        {"record", [this, stream] { return event_ = sim_.record(stream), true; }},
        {"query", [&] { return sim_.query(event_), true; }},
        {"stream_wait", [this, stream] { return sim_.stream_wait(stream, event_), true; }},
        {"wait", [&] { return sim_.wait(event_), true; }},
        {"synchronize", [&] { return sim_.synchronize(), true; }},
        {"synchronize stream", [this, stream] { return sim_.synchronize(stream), true; }},
        {"unmap", [&] { return sim_.unmap(range_->base, *pages_), true; }},
        {"release", [&] { return sim_.release_pages(*pages_), true; }},
        {"unmap again", [&] { return sim_.unmap(range_->base + kPage, *pages_), true; }},
        {"release_address", [&] { return sim_.release_address(*range_), true; }},
        {"free", [&] { return sim_.free_segment(*segment_), true; }},
        {"destroy", [&] { return sim_.destroy_event(event_), true; }},
    };
  }

  SimBackend& sim_;
  std::optional<Segment> segment_;
  std::optional<AddressRange> range_;
  std::optional<PageHandle> pages_;
  Event event_;
};

class SimFailure : public ::testing::TestWithParam<bool> {};

TEST_P(SimFailure, EveryDriverCallCanFailAndNothingChanges) {
  for (std::size_t call = 0; call < kDriverCalls; ++call) {
    for (std::uint64_t nth = 1; nth <= 3; ++nth) {
      SCOPED_TRACE(driver_call_name(static_cast<DriverCall>(call)));
      SimBackend sim({.capacity_bytes = 64 * kMiB, .lag_ns = 1000, .real_memory = GetParam()});
      sim.fail_call(static_cast<DriverCall>(call), nth);
      const int failures = Life(sim).run();
      EXPECT_LE(failures, 1);
      EXPECT_TRUE(failures == 1 || nth > 1);
    }
  }
}

TEST_P(SimFailure, ScriptedFailuresCanBeCalledOff) {
  SimBackend sim({.capacity_bytes = 64 * kMiB, .real_memory = GetParam()});
  sim.set_failure_rate(1.0);
  EXPECT_FALSE(sim.create_pages(2 * kMiB));
  sim.fail_call(DriverCall::kUnmap, 1);
  sim.clear_failures();
  EXPECT_EQ(Life(sim).run(), 0);
}

INSTANTIATE_TEST_SUITE_P(Memory, SimFailure, ::testing::Values(false, true),
                         [](const auto& memory) { return memory.param ? "real" : "fake"; });

}  // namespace
}  // namespace tenon
