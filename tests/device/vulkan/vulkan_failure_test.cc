// Every call of Vulkan fails once in turn, over real drivers.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "support/vulkan.h"
#include "tenon/memory/policies.h"
#include "vulkan_failing/failing_loader.h"

namespace tenon {
namespace {

constexpr int kOutOfHostMemory = -1;
constexpr int kOutOfDeviceMemory = -2;
constexpr int kDeviceLost = -4;
constexpr int kTooManyObjects = -10;
constexpr int kFragmentedPool = -12;

class VulkanFailures : public ::testing::TestWithParam<std::string> {
 protected:
  VulkanFailures() {
    void* const library = ::dlopen(TENON_VULKAN_FAILING_LOADER, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << ::dlerror();
    pretend_ = reinterpret_cast<decltype(pretend_)>(::dlsym(library, "failing_loader_pretend"));
    fail_ = reinterpret_cast<decltype(fail_)>(::dlsym(library, "failing_loader_fail"));
    calls_ = reinterpret_cast<decltype(calls_)>(::dlsym(library, "failing_loader_calls"));
    failed_ = reinterpret_cast<decltype(failed_)>(::dlsym(library, "failing_loader_failed"));
    for (const auto& each : testing::vulkan_drivers())
      if (each.name == GetParam()) ::setenv("VK_DRIVER_FILES", each.file.c_str(), 1);
    fail_(0, 0);
  }
  ~VulkanFailures() override {
    pretend_(Lack::kNone);
    fail_(0, 0);
  }

  static std::shared_ptr<const VulkanDriver> open() {
    VulkanDriverOptions options;
    options.loader = TENON_VULKAN_FAILING_LOADER;
    auto driver = VulkanDriver::open(options);
    testing::keep_drivers_loaded();
    return driver;
  }
  // Runs the step with the nth call failing, for every n that it makes. Returns what failed.
  template <typename Step>
  std::set<std::string> fail_each_call(int result, Step&& step) {
    std::set<std::string> seen;
    for (std::uint64_t nth = 1;; ++nth) {
      fail_(nth, result);
      which_failed_.clear();
      step();
      stop_failing();
      if (which_failed_.empty()) return seen;
      seen.insert(which_failed_);
    }
  }
  // The rest of a step goes well.
  void stop_failing() {
    if (const char* failed = failed_()) which_failed_ = failed;
    fail_(0, 0);
  }

  std::string which_failed_;

  decltype(&failing_loader_pretend) pretend_ = nullptr;
  decltype(&failing_loader_fail) fail_ = nullptr;
  decltype(&failing_loader_calls) calls_ = nullptr;
  decltype(&failing_loader_failed) failed_ = nullptr;
};

std::vector<std::string> driver_names() {
  std::vector<std::string> names;
  for (const auto& each : testing::vulkan_drivers()) names.push_back(each.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Vulkan, VulkanFailures, ::testing::ValuesIn(driver_names()),
                         [](const auto& driver) { return driver.param; });

// Calls it; a failure is an error of Vulkan or lack of memory, and nothing else.
template <typename Call>
bool attempt(Call&& call) {
  try {
    call();
    return true;
  } catch (const DeviceError& error) {
    EXPECT_NE(std::strstr(error.what(), "vk"), nullptr) << error.what();
    EXPECT_NE(std::strstr(error.what(), "VK_"), nullptr) << error.what();
  } catch (const OutOfMemory&) {
  }
  return false;
}

// Captures a fill of 100 bytes and runs it twice. Whether all of it was done.
bool use_capture(VulkanBackend& backend, void* data, Stream stream) {
  if (!attempt([&] { backend.begin_capture(stream); })) return false;
  bool done = attempt([&] { backend.fill(data, 7, 100, stream); });
  std::uint64_t capture = 0;
  done &= attempt([&] { capture = backend.end_capture(stream); });
  if (capture == 0) return false;
  for (int i = 0; i < 2; ++i) done &= attempt([&] { backend.run_capture(capture); });
  backend.drop_capture(capture);
  return done;
}

// Work on two streams through an allocator. Whether all of it was done.
bool use(VulkanBackend& backend, DeviceAllocator& allocator) {
  std::vector<Stream> streams = {Stream{backend.device(), 0}};
  bool done = attempt([&] { streams.push_back(backend.create_stream()); });
  const Stream stream = streams.back();
  std::vector<DataPtr> blocks;
  for (const std::size_t size : {100u, 100000u, 3000000u}) {
    done &= attempt([&] { blocks.push_back(allocator.allocate_on(size, stream)); });
    if (blocks.empty()) continue;
    done &= attempt([&] { backend.fill(blocks.back().get(), 7, 100, stream); });
    done &= attempt([&] {
      const Event event = backend.record(stream);
      backend.stream_wait(Stream{backend.device(), 0}, event);
      backend.query(event);
      backend.wait(event);
      backend.destroy_event(event);
    });
    done &= use_capture(backend, blocks.back().get(), stream);
    char text[100] = {};
    done &= attempt([&] { backend.copy(text, blocks.back().get(), 100, stream); });
  }
  for (DataPtr& block : blocks) done &= attempt([&] { block.clear(); });
  done &= attempt([&] { allocator.empty_cache(); });
  return attempt([&] {
           if (stream.id != 0) backend.destroy_stream(stream);
         }) &&
         done;
}

TEST_P(VulkanFailures, ABackendThatCannotBeMadeLeavesNothing) {
  std::set<std::string> seen;
  seen = fail_each_call(kOutOfHostMemory, [&] {
    try {
      const VulkanBackend backend(open(), 0);
      EXPECT_EQ(failed_(), nullptr) << "made although a call failed";
    } catch (const DeviceError& error) {
      EXPECT_NE(failed_(), nullptr) << error.what();
    }
  });
  for (const char* name : {"vkCreateInstance", "vkEnumeratePhysicalDevices", "vkCreateDevice",
                           "vkCreateSemaphore", "vkCreateCommandPool", "vkCreateBuffer",
                           "vkAllocateMemory", "vkMapMemory"})
    EXPECT_TRUE(seen.contains(name)) << name;
}

TEST_P(VulkanFailures, ADeviceThatLacksWhatTenonNeedsIsRefusedWithTheRemedy) {
  const auto driver = open();
  const std::pair<Lack, std::string> cases[] = {
      {Lack::kVersion, "it is of Vulkan 1.1, and Tenon needs 1.2; update its driver, or take "
                       "another device"},
      {Lack::kTimelines, "it has no timelineSemaphore; update its driver"},
      {Lack::kAddresses, "it has no bufferDeviceAddress; update its driver"},
      {Lack::kQueues, "it has no queue that computes"},
  };
  for (const auto& [lack, message] : cases) {
    pretend_(lack);
    try {
      const VulkanBackend backend(driver, 0);
      ADD_FAILURE() << "made without " << message;
    } catch (const DeviceError& error) {
      EXPECT_NE(std::strstr(error.what(), message.c_str()), nullptr) << error.what();
      EXPECT_NE(std::strstr(error.what(), "vulkan:0 ("), nullptr) << error.what();
    }
  }
  pretend_(Lack::kNone);
  EXPECT_NO_THROW(VulkanBackend(driver, 0));
}

TEST_P(VulkanFailures, ADeviceThatAnotherProcessFillsIsOutOfMemoryUntilItIsFreeAgain) {
  VulkanBackend backend(open(), 0);
  for (const std::string policy : {"unified", "pool", "caching"}) {
    const auto allocator = make_policy(policy, backend);
    DataPtr held = allocator->allocate(1 << 20);
    pretend_(Lack::kMemory);
    try {
      static_cast<void>(allocator->allocate(64 << 20));
      ADD_FAILURE() << policy << " made memory of nothing";
    } catch (const OutOfMemory& error) {
      EXPECT_NE(std::strstr(error.what(), "requested 64 MiB"), nullptr) << error.what();
      EXPECT_NE(std::strstr(error.what(), "vulkan:0"), nullptr) << error.what();
      EXPECT_NE(std::strstr(error.what(), "free"), nullptr) << error.what();
    }
    allocator->check_invariants();
    pretend_(Lack::kNone);
    EXPECT_NO_THROW(static_cast<void>(allocator->allocate(64 << 20))) << policy;
  }
}

TEST_P(VulkanFailures, EachCallThatFailsLeavesTheBooksWholeAndTheNextIsServed) {
  std::set<std::string> seen;
  const bool fast = GetParam() == "lavapipe";  // SwiftShader sets all memory to zero
  for (const std::string policy : {"unified", "caching", "system", "pool"})
    for (const int result :
         {kOutOfHostMemory, kOutOfDeviceMemory, kTooManyObjects, kFragmentedPool}) {
      if (!fast && (policy == "pool" || result != kOutOfDeviceMemory)) continue;
      VulkanBackend backend(open(), 0);
      const auto allocator = make_policy(policy, backend);
      seen.merge(fail_each_call(result, [&] {
        use(backend, *allocator);
        stop_failing();
        allocator->check_invariants();
        EXPECT_EQ(allocator->stats().allocation[0].current, 0);
        EXPECT_TRUE(use(backend, *allocator)) << policy << ", result " << result;
      }));
      EXPECT_EQ(allocator->reserved_bytes(), 0u);
    }
      for (const char* name :
       {"vkAllocateMemory", "vkCreateBuffer", "vkBindBufferMemory", "vkMapMemory", "vkQueueSubmit",
        "vkBeginCommandBuffer", "vkEndCommandBuffer", "vkWaitSemaphores",
        "vkGetSemaphoreCounterValue"})
    EXPECT_TRUE(seen.contains(name)) << name;
}

// void main() {}, for one invocation.
constexpr std::uint32_t kNothing[] = {
    0x07230203, 0x00010000, 0, 5, 0,               // SPIR-V 1.0
    0x00020011, 1,                                 // of capability Shader
    0x0003000e, 0, 1,                              // memory: logical, GLSL450
    0x0005000f, 5, 1, 0x6e69616d, 0,               // entry of a compute shader: "main"
    0x00060010, 1, 17, 1, 1, 1,                    // its local size
    0x00020013, 2, 0x00030021, 3, 2,               // void, void()
    0x00050036, 2, 1, 0, 3,                        // main
    0x000200f8, 4, 0x000100fd, 0x00010038};

TEST_P(VulkanFailures, AKernelThatCannotBeMadeReadyRunsByTheNextCall) {
  const Stream stream{{DeviceType::kVulkan, 0}, 0};
  const VulkanKernel kernel{kNothing, {}, true};
  std::set<std::string> seen;
  for (std::uint64_t nth = 1;; ++nth) {
    VulkanBackend backend(open(), 0);
    const auto segment = backend.allocate_segment(1 << 20);
    ASSERT_TRUE(segment);
    const auto launch = [&] {
      backend.launch(kernel, {}, {1, 1, 1}, stream, {segment->base, segment->base});
      backend.synchronize();
    };
    fail_(nth, kOutOfDeviceMemory);
    const bool done = attempt(launch);
    which_failed_.clear();
    stop_failing();
    EXPECT_EQ(done, which_failed_.empty()) << which_failed_;
    EXPECT_TRUE(attempt(launch)) << which_failed_;
    backend.free_segment(*segment);
    if (which_failed_.empty()) break;
    seen.insert(which_failed_);
  }
  for (const char* name :
       {"vkCreateShaderModule", "vkCreateDescriptorSetLayout", "vkCreatePipelineLayout",
        "vkCreateComputePipelines", "vkCreateBufferView", "vkCreateDescriptorPool",
        "vkAllocateDescriptorSets", "vkQueueSubmit"})
    EXPECT_TRUE(seen.contains(name)) << name;
}

TEST_P(VulkanFailures, ADeviceThatIsLostRefusesRequestsAndTakesFrees) {
  fail_(0, 0);
  for (std::uint64_t nth = 1;; ++nth) {
    auto backend = std::make_unique<VulkanBackend>(open(), 0);
    auto allocator = make_policy("unified", *backend);
    DataPtr block = allocator->allocate(1000);
    fail_(nth, kDeviceLost);
    use(*backend, *allocator);
    const bool lost = failed_() != nullptr;
    if (lost) {
      EXPECT_THROW(
          {
            backend->fill(block.get(), 1, 1000, Stream{backend->device(), 0});
            backend->synchronize();
          },
          VulkanError);
      EXPECT_NO_THROW(block.clear());
    }
    block.clear();
    allocator.reset();
    backend.reset();
    fail_(0, 0);
    if (!lost) break;
  }
}

}  // namespace
}  // namespace tenon
