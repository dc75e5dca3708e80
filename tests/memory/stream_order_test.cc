// The stream rule: under random schedules on simulated streams that lag behind the host, no policy
// hands out bytes that another stream may still be using, and none unmaps an address in use.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tenon/base/random.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

struct Live {
  DataPtr data;
  std::uint64_t size_bytes = 0;
  std::uint64_t owner = 0;
  Stream home;
};

class Schedule {
 public:
  Schedule(const std::string& policy, std::uint64_t seed, std::uint64_t capacity_bytes)
      : random_(seed), backend_(options(capacity_bytes)) {
    PolicyOptions policy_options;
    if (find_policy(policy).limits_itself) policy_options.limit_bytes = capacity_bytes;
    streams_.push_back(Stream{backend_.device(), 0});
    for (int i = 0; i < 3; ++i) streams_.push_back(backend_.create_stream());
    allocator_ = make_policy(policy, backend_, policy_options);
    records_streams_ = policy == "caching" || policy == "expandable" || policy == "stitched" ||
                       policy == "unified" || policy == "system";
  }

  void step() {
    backend_.advance_to(time_ns_ += random_.below(2'000'000));
    const std::uint64_t dice = random_.below(100);
    if (dice < 50 || live_.empty()) {
      allocate();
    } else if (dice < 70) {
      use(live_[random_.below(live_.size())]);
    } else if (dice < 99) {
      release(random_.below(live_.size()));
    } else {
      allocator_->empty_cache();
    }
  }

  void finish() {
    while (!live_.empty()) release(live_.size() - 1);
    allocator_->check_invariants();
    EXPECT_EQ(allocator_->stats().allocation[0].current, 0);
    allocator_.reset();
    EXPECT_EQ(backend_.order_violations(), std::vector<std::string>());
  }

 private:
  static SimOptions options(std::uint64_t capacity_bytes) {
    SimOptions out;
    out.capacity_bytes = capacity_bytes;
    out.lag_ns = 5'000'000;
    out.check_order = true;
    return out;
  }

  void access(const Live& block, Stream stream) {
    backend_.queue_work(stream);
    backend_.access(stream, block.data.get(), block.size_bytes,
                    block.owner);
  }

  void allocate() {
    const Stream stream = streams_[random_.below(streams_.size())];
    // Sizes over many octaves: 512 B to 64 MiB.
    const std::uint64_t size = random_.between(1, std::uint64_t{512} << random_.below(18));
    try {
      live_.push_back({allocator_->allocate_on(size, stream), size, ++owners_, stream});
    } catch (const OutOfMemory&) {
      if (!live_.empty()) release(random_.below(live_.size()));
      return;
    }
    access(live_.back(), stream);
  }

  void use(Live& block) {
    if (records_streams_ && random_.chance(0.4)) {
      const Stream other = streams_[random_.below(streams_.size())];
      allocator_->record_stream(block.data, other);
      // What the program owes: the other stream starts after the one that made the contents.
      const Event made = backend_.record(block.home);
      backend_.stream_wait(other, made);
      backend_.destroy_event(made);
      access(block, other);
    } else {
      access(block, block.home);
    }
  }

  void release(std::size_t i) {
    std::swap(live_[i], live_.back());
    live_.pop_back();
  }

  Random random_;
  SimBackend backend_;
  std::vector<Stream> streams_;
  std::unique_ptr<DeviceAllocator> allocator_;
  std::vector<Live> live_;
  std::uint64_t owners_ = 0;
  std::uint64_t time_ns_ = 0;
  bool records_streams_ = false;
};

class StreamRule : public ::testing::TestWithParam<std::string> {};

TEST_P(StreamRule, HoldsUnderRandomSchedules) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule schedule(GetParam(), seed, std::uint64_t{1} << 40);
    for (int i = 0; i < 1500; ++i) schedule.step();
    schedule.finish();
    if (HasFailure()) return;
  }
}

TEST_P(StreamRule, HoldsWhenMemoryIsShort) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule schedule(GetParam(), seed, 400 * kMiB);
    for (int i = 0; i < 1500; ++i) schedule.step();
    schedule.finish();
    if (HasFailure()) return;
  }
}

std::vector<std::string> policies_to_check() {
  std::vector<std::string> names;
  for (const Policy& policy : policies())
    if (policy.name != "null" && policy.name != "plan") names.push_back(policy.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, StreamRule, ::testing::ValuesIn(policies_to_check()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace tenon
