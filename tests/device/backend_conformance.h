// What every Backend must do. To enrol one, give a name and a factory:
//
//   INSTANTIATE_TEST_SUITE_P(Vulkan, BackendConformance, ::testing::Values(BackendCase{
//       .name = "vulkan", .make = [] { return std::make_shared<VulkanBackend>(); }}),
//       case_name);
//
// The tests ask limits() first: a backend is held to what it claims, and to refusing the rest.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/device/backend.h"

namespace tenon {

struct BackendCase {
  std::string name;
  std::function<std::shared_ptr<Backend>()> make;
  bool checks_contents = true;  // copy and fill refuse addresses without memory
  // What it was made with: then memory() and refusals are held to it. 0: the machine's, of which
  // other programs use some.
  std::uint64_t capacity_bytes = 0;
};

inline std::string case_name(const ::testing::TestParamInfo<BackendCase>& info) {
  return info.param.name;
}
inline void PrintTo(const BackendCase& backend, std::ostream* out) { *out << backend.name; }

class BackendConformance : public ::testing::TestWithParam<BackendCase> {
 protected:
  const BackendLimits& limits() const { return backend_->limits(); }
  std::uint64_t page() const { return limits().page_granularity; }
  Stream stream() const { return Stream{backend_->device(), 0}; }

  // A handle mapped at `address`, readable and writable.
  PageHandle mapped(std::uintptr_t address, std::uint64_t size_bytes);
  void map_too(std::uintptr_t address, PageHandle pages);

  // Contents through the backend's own copies. Without real memory write does nothing but ask,
  // and read returns what was expected.
  void write(void* address, const std::string& text);
  std::string read(void* address, const std::string& expected);

  // Work that takes a while, so that what does not wait for it comes too early: fills all of the
  // segment again and again, at last with `value`.
  static constexpr std::uint64_t kLargeBytes = 16 << 20;
  void keep_busy(const Segment& segment, char value, Stream stream);
  void expect_filled(const Segment& segment, char value);

  std::shared_ptr<Backend> backend_ = GetParam().make();
};

// For tests of virtual memory: skipped where there is none.
class VirtualMemoryConformance : public BackendConformance {
 protected:
  void SetUp() override;
  void TearDown() override;
  void* at(std::uint64_t pages) const;
  std::uintptr_t address(std::uint64_t pages) const { return range_.base + pages * page(); }

  AddressRange range_;  // sixteen pages
};

}  // namespace tenon
