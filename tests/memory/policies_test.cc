// Making policies by name: each obeys the options it uses, and the others are refused.
#include "tenon/memory/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/refusal.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/forwarding_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/heap/plan.h"
#include "tenon/memory/system/system_allocator.h"

namespace tenon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::refusal;

TEST(PoliciesTest, OptionsThatAPolicyDoesNotUseAreRefused) {
  SimBackend device;
  const Plan plan;
  const auto expect = [&](const Policy& policy, bool used, const char* option,
                          PolicyOptions options) {
    SCOPED_TRACE(policy.name + " " + option);
    if (policy.needs_plan) options.plan = &plan;
    if (used) {
      EXPECT_NO_THROW(make_policy(policy.name, device, options));
      return;
    }
    EXPECT_THAT(refusal([&] { make_policy(policy.name, device, options); }),
                AllOf(HasSubstr("policy " + policy.name), HasSubstr(option),
                      HasSubstr("leave it out")));
    EXPECT_NO_THROW(make_policy(policy.name, device, options_for(policy, options)));
  };
  for (const Policy& policy : policies()) {
    expect(policy, policy.uses_conf, "conf", {.conf = "max_split_size_mb:64"});
    expect(policy, policy.uses_limit, "limit_bytes", {.limit_bytes = 64 * kMiB});
    expect(policy, policy.uses_page, "page_bytes", {.page_bytes = 2 * kMiB});
    expect(policy, policy.needs_plan, "plan", {.plan = &plan});
  }
}

TEST(PoliciesTest, SettingsThatNoPolicyKnowsAreRefusedByAll) {
  SimBackend device;
  for (const Policy& policy : policies())
    for (const char* conf : {"max_split_size_mb:abc", "nonsense:1"})
      EXPECT_THROW(make_policy(policy.name, device, {.conf = conf}), InvalidArgument)
          << policy.name << " " << conf;
}

TEST(PoliciesTest, NoPolicyHoldsMoreThanItsLimit) {
  constexpr std::uint64_t kLimit = 64 * kMiB;
  const Plan plan;
  for (const Policy& policy : policies()) {
    if (!policy.uses_limit) continue;
    SCOPED_TRACE(policy.name);
    SimBackend device;
    const auto allocator =
        make_policy(policy.name, device,
                    options_for(policy, {.limit_bytes = kLimit, .plan = &plan}));
    std::vector<DataPtr> blocks;
    try {
      while (blocks.size() < 100) blocks.push_back(allocator->allocate(kMiB + 1));
      ADD_FAILURE() << "no end at 100 MiB";
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(error.details().limit_bytes, kLimit);
    }
    EXPECT_GE(blocks.size(), 20U);
    EXPECT_LE(device.peak_used_bytes(), kLimit);
    blocks.pop_back();
    EXPECT_NO_THROW(blocks.push_back(allocator->allocate(kMiB + 1)));
    allocator->check_invariants();
  }
}

// The driver rounds a segment up, here to 2 MiB, and the rounding counts.
TEST(PoliciesTest, TheLimitOfSystemCountsTheDriversRounding) {
  SimOptions options;
  options.alignment = 2 * kMiB;
  SimBackend device(options);
  SystemAllocator allocator(device, 3 * kMiB);
  const DataPtr block = allocator.allocate(kMiB);
  EXPECT_THROW(allocator.allocate(kMiB), OutOfMemory);
  EXPECT_EQ(allocator.reserved_bytes(), device.used_bytes());
  allocator.check_invariants();
}

// A device with streams and without virtual memory, which a policy may ask for all the same.
class NoPagesBackend final : public ForwardingBackend {
 public:
  explicit NoPagesBackend(Backend& driver)
      : ForwardingBackend(driver), limits_(driver.limits()) {
    limits_.has_virtual_memory = false;
    limits_.can_map_twice = false;
  }
  const BackendLimits& limits() const override { return limits_; }

 private:
  BackendLimits limits_;
};

TEST(PoliciesTest, AdviceFitsTheRequestThatFailed) {
  const auto message = [](const char* policy, std::uint64_t limit_bytes, std::uint64_t size_bytes) {
    SimBackend device;
    const auto allocator = make_policy(policy, device, {.limit_bytes = limit_bytes});
    try {
      allocator->allocate(size_bytes);
    } catch (const OutOfMemory& error) {
      return std::string(error.what());
    }
    return std::string("served");
  };
  EXPECT_THAT(message("host", kMiB, 1000), AllOf(HasSubstr("regions of 2 MiB and more"),
                                                 Not(HasSubstr("above 64 KiB"))));
  EXPECT_THAT(message("host", kMiB, 100 * kKiB), HasSubstr("blocks above 64 KiB"));
  EXPECT_THAT(message("caching", kMiB, 4 * kMiB),
              AllOf(HasSubstr("reserved 0 B"), Not(HasSubstr("in pieces"))));
}

// The table of docs/policies.md: what each policy needs and can do.
TEST(PoliciesTest, EachNeedsAndDoesWhatItsPageSays) {
  struct Row {
    bool needs_pages, records, shares;
  };
  const std::map<std::string, Row> rows = {
      {"null", {false, true, true}},       {"system", {false, true, true}},
      {"host", {false, false, false}},     {"buddy", {false, false, false}},
      {"pool", {false, false, false}},     {"caching", {false, true, false}},
      {"expandable", {true, true, false}}, {"unified", {false, true, true}},
      {"stitched", {true, true, true}},    {"arena", {false, true, false}},
      {"plan", {false, false, false}}};
  Plan plan;
  plan.set_stream(0, {{0, kMiB}});
  for (const Policy& policy : policies()) {
    SCOPED_TRACE(policy.name);
    ASSERT_TRUE(rows.contains(policy.name));
    const Row& row = rows.at(policy.name);
    SimBackend device({.capacity_bytes = kGiB});
    const Stream side = device.create_stream();
    const PolicyOptions options = options_for(policy, {.plan = &plan});
    NoPagesBackend no_pages(device);
    if (row.needs_pages) {
      EXPECT_THROW(make_policy(policy.name, no_pages, options), InvalidArgument);
    } else {
      EXPECT_NO_THROW(make_policy(policy.name, no_pages, options)->allocate(kMiB));
    }
    const auto allocator = make_policy(policy.name, device, options);
    {
      const DataPtr block = allocator->allocate(kMiB);
      if (row.records) {
        EXPECT_NO_THROW(allocator->record_stream(block, side));
      } else {
        EXPECT_THROW(allocator->record_stream(block, side), InvalidArgument);
      }
    }
    allocator->allocate(64 * kMiB).clear();
    const std::uint64_t peak = device.peak_used_bytes();
    allocator->allocate_on(64 * kMiB, side).clear();
    EXPECT_EQ(device.peak_used_bytes() == peak, row.shares);
    allocator->empty_cache();
    EXPECT_EQ(allocator->reserved_bytes(), 0u);
  }
}

}  // namespace
}  // namespace tenon
