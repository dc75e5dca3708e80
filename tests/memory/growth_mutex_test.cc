// Questions while another thread grows over a driver that takes its time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/device/forwarding_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

// Counts growths: each ends with one of these calls.
class SlowBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  std::optional<Segment> allocate_segment(std::uint64_t size_bytes, MemoryKind kind) override {
    take_time();
    return driver().allocate_segment(size_bytes, kind);
  }
  bool set_access(std::uintptr_t address, std::uint64_t size_bytes) override {
    take_time();
    return driver().set_access(address, size_bytes);
  }
  int growths() const { return growths_; }

 private:
  void take_time() {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    ++growths_;
  }
  std::atomic<int> growths_{0};
};

class Questions : public ::testing::TestWithParam<std::string> {};

TEST_P(Questions, WaitForTheGrowthUnderWayAndOneMoreAtMost) {
  SimBackend device({.capacity_bytes = 256 * kGiB});
  SlowBackend slow(device);
  const auto allocator = make_policy(GetParam(), slow);
  std::atomic<bool> is_over{false};
  std::thread grower([&] {
    std::vector<DataPtr> blocks;
    while (!is_over && slow.growths() < 1000) blocks.push_back(allocator->allocate(32 * kMiB));
  });
  int prompt = 0;
  constexpr int kPolls = 20;
  for (int i = 0; i < kPolls; ++i) {
    const int before = slow.growths();
    static_cast<void>(allocator->stats());
    prompt += slow.growths() - before <= 2;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  is_over = true;
  grower.join();
  EXPECT_GE(prompt, kPolls * 3 / 4);  // the system may suspend this thread between two lines
}

INSTANTIATE_TEST_SUITE_P(Policies, Questions,
                         ::testing::Values("caching", "expandable", "stitched", "pool", "arena",
                                           "unified"),
                         [](const auto& policy) { return policy.param; });

}  // namespace
}  // namespace tenon
