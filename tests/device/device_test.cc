// Devices: their kinds by name, also in a child of fork.
#include "tenon/device/device.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tenon/base/error.h"

namespace tenon {
namespace {

TEST(Device, KindsHaveNamesAndValues) {
  EXPECT_EQ(device_type_name(DeviceType::kMetal), "metal");
  EXPECT_EQ(parse_device("cuda:3"), (Device{DeviceType::kCuda, 3}));
  EXPECT_EQ(register_device_type("cuda"), DeviceType::kCuda);
  const DeviceType npu = register_device_type("device_test_npu");
  EXPECT_GE(npu, DeviceType::kFirstRegistered);
  EXPECT_EQ(register_device_type("device_test_npu"), npu);
  EXPECT_EQ(to_string(Device{npu, 1}), "device_test_npu:1");
  EXPECT_EQ(parse_device("device_test_npu"), (Device{npu, 0}));
  EXPECT_EQ(device_type_name(static_cast<DeviceType>(200)), "device_type_200");
}

TEST(Device, ThreadsThatRegisterOneNameGetOneKind) {
  std::vector<DeviceType> kinds(4);
  std::vector<std::thread> threads;
  for (DeviceType& kind : kinds)
    threads.emplace_back([&] { kind = register_device_type("device_test_shared"); });
  for (std::thread& thread : threads) thread.join();
  for (const DeviceType kind : kinds) EXPECT_EQ(kind, kinds.front());
}

TEST(Device, BadNamesAreRefused) {
  for (const char* name : {"", "Cuda", "a b", "cuda:0"})
    EXPECT_THROW(register_device_type(name), InvalidArgument) << name;
  for (const char* text : {"", ":0", "nothing", "cuda:", "cuda:-1", "cuda:x", "cuda:1 "})
    EXPECT_THROW(parse_device(text), InvalidArgument) << text;
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // no fork beside threads there
// A message about memory names its device: no thread of the parent may hold the names in a child.
TEST(Device, ForkedChildNamesDevicesBesideThreadsThatDo) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!stop) device_type_name(DeviceType::kSim);
    });
  for (int round = 0; round < 100; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      _exit(device_type_name(DeviceType::kSim) == "sim" ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "in round " << round;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}
#endif

}  // namespace
}  // namespace tenon
