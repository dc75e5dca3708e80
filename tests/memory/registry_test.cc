#include "tenon/memory/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/memory/host/cpu_allocator.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

class NamedAllocator : public Allocator {
 public:
  DataPtr allocate(std::size_t) override { return DataPtr(Device{}); }
  void copy_data(void*, const void*, std::size_t) const override {}
};

NamedAllocator registered_statically;
NamedAllocator registered_statically_lower;
TENON_REGISTER_ALLOCATOR(register_device_type("registry_static"), &registered_statically, 5);
TENON_REGISTER_ALLOCATOR(register_device_type("registry_static"), &registered_statically_lower, 4);

// What another static initialiser sees.
Allocator* const seen_at_static_initialisation =
    get_allocator(register_device_type("registry_static"));

TEST(Registry, StaticRegistrationWorksBeforeMainAndKnowsPriorities) {
  EXPECT_EQ(seen_at_static_initialisation, &registered_statically);
  EXPECT_EQ(get_allocator(register_device_type("registry_static")), &registered_statically);
}

TEST(Registry, EqualOrHigherPriorityReplacesAndLowerDoesNot) {
  const DeviceType type = register_device_type("registry_priority");
  NamedAllocator a;
  NamedAllocator b;
  NamedAllocator c;
  set_allocator(type, &a, 1);
  set_allocator(type, &b, 0);
  EXPECT_EQ(get_allocator(type), &a);
  set_allocator(type, &b, 1);
  EXPECT_EQ(get_allocator(type), &b);
  set_allocator(type, &c, 255);
  set_allocator(type, &a, 254);
  EXPECT_EQ(get_allocator(type), &c);
  unset_allocator(type);
  set_allocator(type, &a, 0);
  EXPECT_EQ(get_allocator(type), &a) << "the priority went with the registration";
  unset_allocator(type);
}

TEST(Registry, MissingAllocatorIsNamedWithTheRemedy) {
  const DeviceType type = register_device_type("registry_empty");
  try {
    get_allocator(type);
    FAIL() << "found an allocator";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("device type registry_empty"));
    EXPECT_THAT(error.what(), HasSubstr("set_allocator"));
  }
}

TEST(Registry, RefusesNullAndUnknownTypes) {
  NamedAllocator a;
  EXPECT_THROW(set_allocator(DeviceType::kXla, nullptr), InvalidArgument);
  EXPECT_THROW(set_allocator(static_cast<DeviceType>(kMaxDeviceTypes), &a), InvalidArgument);
  EXPECT_THROW(get_allocator(static_cast<DeviceType>(200)), InvalidArgument);
}

TEST(Registry, TheCpuAlwaysHasAnAllocator) {
  EXPECT_EQ(get_cpu_allocator(), get_default_cpu_allocator());
  NamedAllocator mine;
  set_cpu_allocator(&mine);
  EXPECT_EQ(get_cpu_allocator(), &mine);
  unset_allocator(DeviceType::kCpu);
  EXPECT_EQ(get_cpu_allocator(), get_default_cpu_allocator());
}

TEST(Registry, ManyThreadsMaySetAndGet) {
  const DeviceType type = register_device_type("registry_threads");
  std::vector<NamedAllocator> allocators(8);
  set_allocator(type, &allocators[0], 0);
  std::vector<std::thread> threads;
  std::atomic<int> strangers{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        set_allocator(type, &allocators[static_cast<std::size_t>((t + i) % 8)], 0);
        const Allocator* got = get_allocator(type);
        if (got < allocators.data() || got >= allocators.data() + 8) ++strangers;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(strangers, 0);
  unset_allocator(type);
}

// The order of registry.h: a device's own before its kind's, a guard before both.
TEST(CurrentAllocator, AsksTheGuardThenTheDeviceThenItsKind) {
  const DeviceType type = register_device_type("registry_order");
  const Device second{type, 1};
  NamedAllocator of_kind, own, guarding;
  EXPECT_THROW(current_allocator(second), InvalidArgument);
  set_allocator(type, &of_kind);
  EXPECT_EQ(current_allocator(second), &of_kind);
  set_device_allocator(second, &own);
  EXPECT_EQ(current_allocator(second), &own);
  EXPECT_EQ(current_allocator(Device{type, 0}), &of_kind);
  {
    const AllocatorGuard guard(second, guarding);
    EXPECT_EQ(current_allocator(second), &guarding);
    EXPECT_EQ(registered_allocator(second), &own);
  }
  unset_device_allocator(second);
  EXPECT_EQ(current_allocator(second), &of_kind);
  unset_allocator(type);
}

// A registration for cpu:0 alone would be asked by some and not by others.
TEST(CurrentAllocator, TheHostIsOneDevice) {
  NamedAllocator mine;
  EXPECT_THROW(set_device_allocator(Device{}, &mine), InvalidArgument);
}

TEST(CurrentAllocator, IsTheRegisteredOneWithoutAGuard) {
  EXPECT_EQ(current_allocator(Device{}), get_cpu_allocator());
  EXPECT_EQ(registered_allocator(Device{}), get_cpu_allocator());
  EXPECT_EQ(guarded_allocator(Device{}), nullptr);
}

TEST(CurrentAllocator, GuardsNestAndUnwind) {
  NamedAllocator outer;
  NamedAllocator inner;
  {
    const AllocatorGuard first(Device{}, outer);
    EXPECT_EQ(current_allocator(Device{}), &outer);
    try {
      const AllocatorGuard second(Device{}, inner);
      EXPECT_EQ(current_allocator(Device{}), &inner);
      throw 1;
    } catch (int) {
    }
    EXPECT_EQ(current_allocator(Device{}), &outer);
    EXPECT_EQ(guarded_allocator(Device{}), &outer);
  }
  EXPECT_EQ(current_allocator(Device{}), get_cpu_allocator());
}

TEST(CurrentAllocator, GuardIsForOneDeviceAndOneThread) {
  NamedAllocator mine;
  const Device second{DeviceType::kCpu, 1};
  const AllocatorGuard guard(second, mine);
  EXPECT_EQ(current_allocator(second), &mine);
  EXPECT_EQ(current_allocator(Device{}), get_cpu_allocator());
  Allocator* elsewhere = nullptr;
  std::thread([&] { elsewhere = current_allocator(second); }).join();
  EXPECT_EQ(elsewhere, get_cpu_allocator());
}

TEST(CurrentAllocator, GuardServesADeviceThatHasNoRegisteredAllocator) {
  const Device device{register_device_type("guarded_only"), 0};
  EXPECT_THROW(current_allocator(device), InvalidArgument);
  NamedAllocator mine;
  {
    const AllocatorGuard guard(device, mine);
    EXPECT_EQ(current_allocator(device), &mine);
  }
  EXPECT_THROW(current_allocator(device), InvalidArgument);
}

}  // namespace
}  // namespace tenon
