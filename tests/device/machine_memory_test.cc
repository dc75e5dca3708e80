#include "tenon/device/host/machine_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/temporary.h"
#include "tenon/device/devices.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;

// A folder that looks like /sys/fs/cgroup.
class CgroupMemory : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((mount_ / file).parent_path());
    std::ofstream(mount_ / file) << text << "\n";
  }
  std::optional<MemoryBudget> read(const std::string& membership) {
    return cgroup_memory(mount_.string(), membership);
  }

  const testing::TemporaryFolder folder_;
  const fs::path mount_ = folder_.path();
};

TEST_F(CgroupMemory, IsUnlimitedWithoutGroups) {
  EXPECT_FALSE(read(""));
  EXPECT_FALSE(read("0::/\n"));
  EXPECT_FALSE(read("nonsense\n7\n:\n::\n"));
}

TEST_F(CgroupMemory, ReadsVersionTwo) {
  write("box/memory.max", "1000000");
  write("box/memory.current", "400000");
  const auto budget = read("0::/box\n");
  ASSERT_TRUE(budget);
  EXPECT_EQ(budget->total_bytes, 1000000u);
  EXPECT_EQ(budget->free_bytes, 600000u);
}

TEST_F(CgroupMemory, TakesTheTightestOfAllGroupsAround) {
  write("memory.max", "max");
  write("outer/memory.max", "500000");
  write("outer/memory.current", "450000");
  write("outer/inner/memory.max", "900000");
  write("outer/inner/memory.current", "100000");
  const auto budget = read("0::/outer/inner\n");
  ASSERT_TRUE(budget);
  EXPECT_EQ(budget->total_bytes, 500000u);
  EXPECT_EQ(budget->free_bytes, 50000u);
}

TEST_F(CgroupMemory, MaxMeansNoLimit) {
  write("box/memory.max", "max");
  EXPECT_FALSE(read("0::/box\n"));
}

TEST_F(CgroupMemory, ReadsVersionOne) {
  write("memory/memory.limit_in_bytes", "9223372036854771712");
  write("memory/job/memory.limit_in_bytes", "2000000");
  write("memory/job/memory.usage_in_bytes", "2500000");
  const auto budget = read("5:cpu,cpuacct:/job\n4:hugetlb,memory:/job\n0::/\n");
  ASSERT_TRUE(budget);
  EXPECT_EQ(budget->total_bytes, 2000000u);
  EXPECT_EQ(budget->free_bytes, 0u) << "usage can be above a limit that was lowered";
  EXPECT_FALSE(read("4:memory:/\n")) << "version 1 writes no limit as a huge number";
}

TEST_F(CgroupMemory, FindsTheLimitOfANamespaceRoot) {
  write("memory.max", "3000000");
  ASSERT_TRUE(read("0::/not/visible/here\n"));
  EXPECT_EQ(read("0::/not/visible/here\n")->total_bytes, 3000000u);
}

TEST(MachineMemory, IsPlausible) {
  const MemoryBudget budget = machine_memory();
  EXPECT_GT(budget.total_bytes, 64u << 20);
  EXPECT_LE(budget.free_bytes, budget.total_bytes);
  EXPECT_GT(budget.free_bytes, 0u);
}

TEST(Devices, ListsTheHostAndTheSimulatedDevice) {
  std::vector<std::string> names;
  for (const DeviceInfo& info : list_devices()) {
    names.push_back(to_string(info.device));
    EXPECT_FALSE(info.line.empty());
    EXPECT_EQ(info.line.find('\n'), std::string::npos);
  }
  EXPECT_EQ(names.front(), "cpu:0");
  EXPECT_EQ(names.back(), "sim:0");
}

}  // namespace
}  // namespace tenon
