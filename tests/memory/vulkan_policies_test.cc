// The policies that move no pages, over real drivers of Vulkan.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "memory/allocator_conformance.h"
#include "support/vulkan.h"
#include "tenon/memory/unified/vulkan_allocator.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/registry.h"

namespace tenon {
namespace {

struct PolicyOnDriver {
  std::string policy;
  std::string driver;

  friend void PrintTo(const PolicyOnDriver& which, std::ostream* out) {
    *out << which.policy << " on " << which.driver;
  }
};

std::vector<PolicyOnDriver> cases() {
  std::vector<PolicyOnDriver> made;
  for (const auto& driver : testing::vulkan_drivers())
    for (const Policy& policy : policies())
      if (policy.name != "null" && policy.name != "expandable" && policy.name != "stitched")
        made.push_back({policy.name, driver.name});
  return made;
}

class VulkanPolicies : public ::testing::TestWithParam<PolicyOnDriver> {
 protected:
  void start(const VulkanOptions& options = {}) {
    backend_ = vulkan_.backend(options);
    const std::string& policy = GetParam().policy;
    allocator_ =
        make_policy(policy, *backend_, options_for(find_policy(policy), {.plan = &a_plan()}));
    streams_ = {Stream{backend_->device(), 0}, backend_->create_stream(),
                backend_->create_stream()};
  }

  // After the allocator's end the driver has everything back.
  void TearDown() override {
    allocator_->check_invariants();
    allocator_.reset();
    const DriverLedger ledger = backend_->ledger();
    EXPECT_EQ(ledger.count(DriverCall::kAllocate), ledger.count(DriverCall::kFree));
  }

  testing::Vulkan vulkan_{GetParam().driver};
  std::unique_ptr<VulkanBackend> backend_;
  std::unique_ptr<DeviceAllocator> allocator_;
  std::vector<Stream> streams_;
};

INSTANTIATE_TEST_SUITE_P(Vulkan, VulkanPolicies, ::testing::ValuesIn(cases()),
                         [](const auto& which) {
                           return which.param.policy + "_" + which.param.driver;
                         });

TEST_P(VulkanPolicies, ContentsSurviveThroughTheHostsPointers) {
  start();
  ChurnOptions options{.seed = 11, .steps = 1500, .max_bytes = 1 << 20, .max_live = 100};
  options.streams = streams_;
  options.empty_cache_chance = 0.01;
  Churn churn(*allocator_, options);
  churn.run();
  EXPECT_EQ(churn.out_of_memory() + churn.device_errors(), 0);
}

// The device fills each block on the block's stream and reads it before it is freed; what is freed
// while work on it is queued comes back only when that is ordered.
class DeviceWork {
 public:
  DeviceWork(Backend& backend, DeviceAllocator& allocator, const std::vector<Stream>& streams,
             bool shares, std::uint64_t seed)
      : backend_(backend),
        allocator_(allocator),
        streams_(streams),
        shares_(shares),
        random_(seed),
        results_(backend.allocate_segment(kResults * kBytes).value()) {}
  ~DeviceWork() {
    blocks_.clear();
    check();
    backend_.free_segment(results_);
  }

  void step() {
    if (blocks_.size() < 30 && random_.chance(0.55)) {
      make();
    } else if (!blocks_.empty()) {
      std::swap(blocks_[random_.below(blocks_.size())], blocks_.back());
      use(blocks_.back());
      blocks_.pop_back();
    }
    if (expected_.size() == kResults) check();
  }

 private:
  static constexpr std::size_t kResults = 64;
  static constexpr std::size_t kBytes = 64;

  struct Made {
    DataPtr data;
    std::size_t size_bytes;
    Stream stream;
    std::uint8_t value;
  };

  void make() {
    const Stream stream = streams_[random_.below(streams_.size())];
    const std::size_t size = kBytes + random_.below(300000);
    const auto value = static_cast<std::uint8_t>(1 + random_.below(255));
    DataPtr data = allocator_.allocate_on(size, stream);
    backend_.fill(data.get(), value, size, stream);
    blocks_.push_back({std::move(data), size, stream, value});
  }

  // Reads the end of the block on its own stream, or on another that waits for it.
  void use(const Made& block) {
    Stream reader = block.stream;
    if (shares_ && random_.chance(0.3)) {
      reader = streams_[random_.below(streams_.size())];
      const Event filled = backend_.record(block.stream);
      backend_.stream_wait(reader, filled);
      backend_.destroy_event(filled);
      allocator_.record_stream(block.data, reader);
    }
    backend_.copy(static_cast<char*>(results_.base) + expected_.size() * kBytes,
                  static_cast<const char*>(block.data.get()) + block.size_bytes - kBytes, kBytes,
                  reader);
    expected_.push_back(block.value);
  }

  void check() {
    backend_.synchronize();
    std::vector<std::uint8_t> found(kResults * kBytes);
    backend_.copy(found.data(), results_.base, found.size(), streams_[0]);
    for (std::size_t i = 0; i < expected_.size(); ++i)
      for (std::size_t at = 0; at < kBytes; ++at)
        ASSERT_EQ(found[i * kBytes + at], expected_[i]) << "result " << i << ", byte " << at;
    expected_.clear();
  }

  Backend& backend_;
  DeviceAllocator& allocator_;
  const std::vector<Stream> streams_;
  const bool shares_;
  Random random_;
  const Segment results_;
  std::vector<Made> blocks_;
  std::vector<std::uint8_t> expected_;
};

bool records_streams(const std::string& policy) {
  return policy == "caching" || policy == "unified" || policy == "system";
}

TEST_P(VulkanPolicies, MemoryIsReusedInStreamOrder) {
  start();
  DeviceWork work(*backend_, *allocator_, streams_, records_streams(GetParam().policy), 21);
  for (int i = 0; i < 600; ++i) work.step();
}

TEST_P(VulkanPolicies, MemoryIsReusedInStreamOrderOnACardWithItsOwn) {
  start({.stage_always = true});
  DeviceWork work(*backend_, *allocator_, streams_, records_streams(GetParam().policy), 22);
  for (int i = 0; i < 600; ++i) work.step();
}

TEST(VulkanAllocatorTest, ServesTheDeviceWithoutRegistration) {
  const auto drivers = testing::vulkan_drivers();
  ASSERT_FALSE(drivers.empty());
  ::setenv("VK_DRIVER_FILES", drivers.front().file.c_str(), 1);
  const Device device{DeviceType::kVulkan, 0};
  Allocator* const allocator = current_allocator(device);
  EXPECT_EQ(allocator, &vulkan_allocator(0));
  const DataPtr block = allocator->allocate(1000);
  EXPECT_EQ(block.device(), device);
  std::memset(block.get(), 1, 1000);  // one memory
}

}  // namespace
}  // namespace tenon
