// The C interface: what each function does, and what it says to wrong use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenon/tenon.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/temporary.h"
#include "tenon/tensor/interop/dlpack_abi.h"

namespace tenon {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <typename T>
T sized() {
  T made{};
  made.struct_bytes = sizeof(T);
  return made;
}

tenon_backend simulated(std::uint64_t capacity_bytes) {
  auto device = sized<tenon_simulated_device>();
  device.capacity_bytes = capacity_bytes;
  device.real_memory = 1;
  tenon_backend backend = 0;
  EXPECT_EQ(tenon_backend_simulated(&device, &backend), TENON_OK) << tenon_last_error();
  return backend;
}

tenon_allocator over(tenon_backend backend, const char* policy) {
  tenon_allocator allocator = 0;
  EXPECT_EQ(tenon_allocator_create(backend, policy, nullptr, &allocator), TENON_OK)
      << tenon_last_error();
  return allocator;
}

void* block_of(tenon_allocator allocator, std::uint64_t size_bytes) {
  void* block = nullptr;
  EXPECT_EQ(tenon_allocate(allocator, size_bytes, 0, &block), TENON_OK) << tenon_last_error();
  return block;
}

TEST(CInterfaceTest, EveryPolicyServesBlocks) {
  for (std::size_t i = 0; tenon_policy_name(i) != nullptr; ++i) {
    const std::string policy = tenon_policy_name(i);
    EXPECT_STRNE(tenon_policy_summary(i), "");
    const tenon_backend backend = simulated(std::uint64_t{1} << 30);
    if (policy == "plan") {
      tenon_allocator none = 7;
      EXPECT_EQ(tenon_allocator_create(backend, "plan", nullptr, &none), TENON_INVALID_ARGUMENT);
      EXPECT_THAT(tenon_last_error(), HasSubstr("plan_file"));
      EXPECT_EQ(none, 7u) << "it was written to";
      EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
      continue;
    }
    const tenon_allocator allocator = over(backend, policy.c_str());
    void* const block = block_of(allocator, 100'000);
    if (policy == "null") {
      EXPECT_EQ(block, nullptr);
    } else {
      std::memset(block, 1, 100'000);
      auto stats = sized<tenon_statistics>();
      EXPECT_EQ(tenon_allocator_statistics(allocator, &stats), TENON_OK);
      EXPECT_EQ(stats.requested_bytes, 100'000) << policy;
      EXPECT_EQ(stats.blocks, 1) << policy;
      EXPECT_GE(stats.reserved_bytes, stats.allocated_bytes) << policy;
    }
    EXPECT_EQ(tenon_free(allocator, block), TENON_OK) << tenon_last_error();
    EXPECT_EQ(tenon_empty_cache(allocator), TENON_OK);
    EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_OK) << tenon_last_error();
    EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK) << tenon_last_error();
  }
  EXPECT_EQ(tenon_policy_name(1000), nullptr);
}

TEST(CInterfaceTest, ThingsThatAreDependedOnStay) {
  const tenon_backend backend = simulated(std::uint64_t{1} << 30);
  const tenon_allocator allocator = over(backend, "caching");
  EXPECT_EQ(tenon_backend_destroy(backend), TENON_IN_USE);
  std::uint32_t stream = 0;
  EXPECT_EQ(tenon_stream_create(backend, &stream), TENON_OK);
  void* block = nullptr;
  EXPECT_EQ(tenon_allocate(allocator, 1000, stream, &block), TENON_OK);
  EXPECT_EQ(tenon_record_stream(allocator, block, 0), TENON_OK);
  EXPECT_EQ(tenon_stream_destroy(backend, stream), TENON_IN_USE);
  EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_IN_USE);
  EXPECT_THAT(tenon_last_error(), HasSubstr("1 blocks live"));
  EXPECT_EQ(tenon_stream_synchronize(backend, stream), TENON_OK);
  EXPECT_EQ(tenon_free(allocator, block), TENON_OK);
  EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_OK) << tenon_last_error();
  EXPECT_EQ(tenon_stream_destroy(backend, stream), TENON_OK);
  EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
  tenon_backend host = 0;
  EXPECT_EQ(tenon_backend_host(&host), TENON_OK);
  EXPECT_EQ(tenon_backend_destroy(host), TENON_INVALID_ARGUMENT);
}

TEST(CInterfaceTest, WrongHandlesAreRefused) {
  const tenon_backend backend = simulated(std::uint64_t{1} << 30);
  const tenon_allocator allocator = over(backend, "pool");
  void* block = nullptr;
  for (const std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, backend,
                                    allocator + 1, allocator ^ (std::uint64_t{1} << 40)}) {
    EXPECT_EQ(tenon_allocate(wrong, 10, 0, &block), TENON_INVALID_HANDLE);
    EXPECT_THAT(tenon_last_error(), StartsWith("tenon_allocate: "));
    EXPECT_EQ(tenon_allocator_destroy(wrong), TENON_INVALID_HANDLE);
    EXPECT_EQ(tenon_traces_destroy(wrong), TENON_INVALID_HANDLE);
    EXPECT_EQ(tenon_observer_remove(wrong), TENON_INVALID_HANDLE);
    EXPECT_EQ(tenon_recording_finish(wrong), TENON_INVALID_HANDLE);
  }
  EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_OK);
  EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_INVALID_HANDLE);
  EXPECT_EQ(tenon_allocate(allocator, 10, 0, &block), TENON_INVALID_HANDLE);
  EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
  EXPECT_NE(simulated(1 << 30), backend) << "a number was used again";
}

TEST(CInterfaceTest, MessagesShowNoControlCharactersOfBadInput) {
  tenon_recording recording = 0;
  EXPECT_EQ(tenon_recording_start("x\033[31m\n.none", &recording), TENON_INVALID_ARGUMENT);
  EXPECT_THAT(tenon_last_error(), HasSubstr(": x\xef\xbf\xbd[31m\xef\xbf\xbd.none: "));
}

TEST(CInterfaceTest, WrongArgumentsAreRefused) {
  const tenon_backend backend = simulated(std::uint64_t{1} << 30);
  tenon_allocator allocator = 0;
  EXPECT_EQ(tenon_allocator_create(backend, nullptr, nullptr, &allocator),
            TENON_INVALID_ARGUMENT);
  EXPECT_EQ(tenon_allocator_create(backend, "best", nullptr, &allocator), TENON_INVALID_ARGUMENT);
  EXPECT_THAT(tenon_last_error(), HasSubstr("\"best\" is no policy"));
  EXPECT_EQ(tenon_allocator_create(backend, "caching", nullptr, nullptr), TENON_INVALID_ARGUMENT);
  tenon_allocator_options options{};  // struct_bytes is 0
  EXPECT_EQ(tenon_allocator_create(backend, "caching", &options, &allocator),
            TENON_INVALID_ARGUMENT);
  EXPECT_THAT(tenon_last_error(), HasSubstr("options.struct_bytes is 0"));
  options.struct_bytes = sizeof(options);
  options.conf = "no_such_key:1";
  EXPECT_EQ(tenon_allocator_create(backend, "caching", &options, &allocator),
            TENON_INVALID_ARGUMENT);
  options.conf = nullptr;
  options.plan_file = "/no/such/file";
  EXPECT_NE(tenon_allocator_create(backend, "plan", &options, &allocator), TENON_OK);
  EXPECT_THAT(tenon_last_error(), HasSubstr("/no/such/file"));
  allocator = over(backend, "caching");
  void* block = nullptr;
  EXPECT_EQ(tenon_allocate(allocator, 10, 3, &block), TENON_INVALID_ARGUMENT);
  EXPECT_THAT(tenon_last_error(), HasSubstr("stream 3"));
  EXPECT_EQ(tenon_allocate(allocator, ~std::uint64_t{0}, 0, &block), TENON_INVALID_ARGUMENT);
  EXPECT_EQ(tenon_free(allocator, &allocator), TENON_INVALID_POINTER);
  EXPECT_EQ(tenon_free(allocator, nullptr), TENON_OK);
  EXPECT_EQ(tenon_copy(backend, nullptr, &block, 1, 0), TENON_INVALID_ARGUMENT);
  EXPECT_EQ(tenon_observer_add(allocator, nullptr, nullptr, &allocator), TENON_INVALID_ARGUMENT);
  tenon_device_functions functions{};
  functions.struct_bytes = sizeof(functions);
  tenon_backend none = 0;
  EXPECT_EQ(tenon_backend_custom(&functions, &none), TENON_INVALID_ARGUMENT);
  EXPECT_THAT(tenon_last_error(), HasSubstr("functions.name"));
  const auto without_memory = sized<tenon_simulated_device>();
  EXPECT_EQ(tenon_backend_simulated(&without_memory, &none), TENON_INVALID_ARGUMENT);
  EXPECT_THAT(tenon_last_error(), HasSubstr("device.capacity_bytes is 0"));
  EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_OK);
  EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
}

TEST(CInterfaceTest, RunningOutGivesTheNumbersToItsThread) {
  const tenon_backend backend = simulated(64 << 20);
  const tenon_allocator allocator = over(backend, "caching");
  void* block = nullptr;
  EXPECT_EQ(tenon_allocate(allocator, 100 << 20, 0, &block), TENON_OUT_OF_MEMORY);
  auto numbers = sized<tenon_out_of_memory>();
  EXPECT_EQ(tenon_last_out_of_memory(&numbers), TENON_OK);
  EXPECT_EQ(numbers.requested_bytes, 100u << 20);
  std::thread([&] {
    EXPECT_STREQ(tenon_last_error(), "");
    EXPECT_EQ(tenon_last_out_of_memory(&numbers), TENON_INVALID_ARGUMENT);
  }).join();
  EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_OK);
  EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
}

// A device of its own, with virtual memory, that keeps count of what it gave.
struct OwnDevice {
  std::map<void*, std::uint64_t> segments;
  std::map<std::uint64_t, std::uint64_t> ranges, pages, mappings;
  std::uint64_t next = std::uint64_t{1} << 40;
};

tenon_device_functions functions_of(OwnDevice& device) {
  auto f = sized<tenon_device_functions>();
  f.context = &device;
  f.name = "own";
  f.total_bytes = 256 << 20;
  f.alignment = 512;
  f.page_granularity = 2 << 20;
  f.can_map_twice = 1;
  f.allocate = [](void* context, std::uint64_t size) {
    auto& own = *static_cast<OwnDevice*>(context);
    own.next += (size + (2 << 20)) / (2 << 20) * (2 << 20);
    own.segments[reinterpret_cast<void*>(own.next)] = size;
    return reinterpret_cast<void*>(own.next);
  };
  f.release = [](void* context, void* base, std::uint64_t size) {
    auto& own = *static_cast<OwnDevice*>(context);
    EXPECT_EQ(own.segments.at(base), size);
    own.segments.erase(base);
  };
  f.reserve_address = [](void* context, std::uint64_t size) {
    auto& own = *static_cast<OwnDevice*>(context);
    own.next += size;
    own.ranges[own.next] = size;
    const std::uint64_t base = own.next;
    own.next += size;
    return base;
  };
  f.release_address = [](void* context, std::uint64_t base, std::uint64_t size) {
    auto& own = *static_cast<OwnDevice*>(context);
    EXPECT_EQ(own.ranges.at(base), size);
    own.ranges.erase(base);
  };
  f.create_pages = [](void* context, std::uint64_t size) {
    auto& own = *static_cast<OwnDevice*>(context);
    own.pages[++own.next] = size;
    own.next += (2 << 20) - 1;
    return own.next - ((2 << 20) - 1);
  };
  f.release_pages = [](void* context, std::uint64_t pages, std::uint64_t size) {
    auto& own = *static_cast<OwnDevice*>(context);
    EXPECT_EQ(own.pages.at(pages), size);
    own.pages.erase(pages);
  };
  f.map = [](void* context, std::uint64_t address, std::uint64_t pages, std::uint64_t) {
    auto& own = *static_cast<OwnDevice*>(context);
    EXPECT_TRUE(own.pages.contains(pages));
    return own.mappings.emplace(address, pages).second ? 1 : 0;
  };
  f.unmap = [](void* context, std::uint64_t address, std::uint64_t pages, std::uint64_t) {
    auto& own = *static_cast<OwnDevice*>(context);
    EXPECT_EQ(own.mappings.at(address), pages);
    own.mappings.erase(address);
  };
  f.copy = [](void*, void*, const void*, std::uint64_t) {};
  f.fill = [](void*, void*, std::uint8_t, std::uint64_t) {};
  return f;
}

TEST(CInterfaceTest, PoliciesStandOnADeviceOfTheProgramsOwn) {
  for (const char* policy : {"system", "host", "buddy", "pool", "caching", "expandable", "unified",
                             "stitched", "arena"}) {
    OwnDevice device;
    const tenon_device_functions functions = functions_of(device);
    tenon_backend backend = 0;
    ASSERT_EQ(tenon_backend_custom(&functions, &backend), TENON_OK) << tenon_last_error();
    const tenon_allocator allocator = over(backend, policy);
    std::vector<void*> blocks;
    for (std::uint64_t size = 1000; size < (32 << 20); size *= 3) {
      void* block = nullptr;
      EXPECT_EQ(tenon_allocate(allocator, size, 0, &block), TENON_OK)
          << policy << ": " << tenon_last_error();
      blocks.push_back(block);
    }
    EXPECT_FALSE(device.segments.empty() && device.mappings.empty()) << policy;
    for (void* block : blocks) EXPECT_EQ(tenon_free(allocator, block), TENON_OK) << policy;
    EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_OK) << policy << tenon_last_error();
    EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
    EXPECT_TRUE(device.segments.empty() && device.ranges.empty()) << policy;
    EXPECT_TRUE(device.pages.empty() && device.mappings.empty()) << policy;
  }
}

// Its streams: work is queued and done by number. What waits does the work.
struct OwnQueues : OwnDevice {
  std::map<std::uint32_t, std::uint64_t> queued, done;
  std::map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>> events;
  std::uint64_t last_event = 0;
  bool fails = false;
};

OwnQueues& queues_of(void* context) {
  return *static_cast<OwnQueues*>(static_cast<OwnDevice*>(context));
}

tenon_stream_functions stream_functions() {
  auto f = sized<tenon_stream_functions>();
  f.record = [](void* context, std::uint32_t stream) {
    OwnQueues& own = queues_of(context);
    if (own.fails) return std::uint64_t{0};
    own.events[++own.last_event] = {stream, own.queued[stream]};
    return own.last_event;
  };
  f.is_done = [](void* context, std::uint64_t event) {
    OwnQueues& own = queues_of(context);
    const auto [stream, count] = own.events.at(event);
    return own.done[stream] >= count ? 1 : 0;
  };
  f.wait = [](void* context, std::uint64_t event) {
    OwnQueues& own = queues_of(context);
    const auto [stream, count] = own.events.at(event);
    own.done[stream] = std::max(own.done[stream], count);
  };
  f.stream_wait = [](void* context, std::uint32_t, std::uint64_t event) {
    EXPECT_TRUE(queues_of(context).events.contains(event));
  };
  f.release_event = [](void* context, std::uint64_t event) {
    EXPECT_EQ(queues_of(context).events.erase(event), 1u);
  };
  return f;
}

TEST(CInterfaceTest, BlocksWaitForTheStreamsOfADeviceOfTheProgramsOwn) {
  for (const char* policy : {"caching", "expandable", "stitched", "unified"}) {
    SCOPED_TRACE(policy);
    OwnQueues device;
    tenon_device_functions functions = functions_of(device);
    functions.synchronize = [](void* context) {
      queues_of(context).done = queues_of(context).queued;
    };
    const tenon_stream_functions streams = stream_functions();
    tenon_backend backend = 0;
    ASSERT_EQ(tenon_backend_custom_with_streams(&functions, &streams, &backend), TENON_OK)
        << tenon_last_error();
    const tenon_allocator allocator = over(backend, policy);
    std::uint32_t side = 0;
    ASSERT_EQ(tenon_stream_create(backend, &side), TENON_OK);
    void* const block = block_of(allocator, 8 << 20);
    device.queued[side] = 1;  // a kernel that reads the block
    EXPECT_EQ(tenon_record_stream(allocator, block, side), TENON_OK) << tenon_last_error();
    EXPECT_EQ(tenon_free(allocator, block), TENON_OK);
    void* const other = block_of(allocator, 8 << 20);
    EXPECT_NE(other, block) << "still read";
    EXPECT_EQ(tenon_free(allocator, other), TENON_OK);
    EXPECT_EQ(device.done[side], 0u);
    EXPECT_EQ(tenon_stream_synchronize(backend, side), TENON_OK);
    EXPECT_EQ(device.done[side], 1u);
    void* const first = block_of(allocator, 8 << 20);
    void* const second = block_of(allocator, 8 << 20);
    if (policy != std::string("unified")) {  // which looks when memory is short
      EXPECT_THAT((std::vector<void*>{first, second}), Contains(block)) << "free again";
    }
    device.queued[side] = 2;
    EXPECT_EQ(tenon_fill(backend, first, 7, 100, side), TENON_OK);
    EXPECT_EQ(device.done[side], 2u) << "a fill comes after the stream's work";
    for (void* held : {first, second}) EXPECT_EQ(tenon_free(allocator, held), TENON_OK);
    device.queued[side] = 3;
    EXPECT_EQ(tenon_stream_destroy(backend, side), TENON_IN_USE);
    EXPECT_THAT(tenon_last_error(), HasSubstr("destroy that allocator first"));
    EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_OK);
    EXPECT_EQ(tenon_stream_destroy(backend, side), TENON_OK);
    EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
    EXPECT_TRUE(device.events.empty());
    EXPECT_EQ(device.done[side], 3u);
  }
}

TEST(CInterfaceTest, StreamsOfADeviceNeedAllTheirFunctions) {
  OwnQueues device;
  tenon_device_functions functions = functions_of(device);
  tenon_stream_functions streams = stream_functions();
  tenon_backend backend = 0;
  const auto expect = [&](tenon_status status, const char* reason) {
    EXPECT_EQ(tenon_backend_custom_with_streams(&functions, &streams, &backend), status);
    EXPECT_THAT(tenon_last_error(), HasSubstr(reason));
  };
  expect(TENON_INVALID_ARGUMENT, "functions.synchronize");
  functions.synchronize = [](void*) {};
  streams.wait = nullptr;
  expect(TENON_INVALID_ARGUMENT, "all five functions");
  streams = stream_functions();
  streams.struct_bytes = 8;
  expect(TENON_INVALID_ARGUMENT, "streams.struct_bytes");
  streams = stream_functions();
  ASSERT_EQ(tenon_backend_custom_with_streams(&functions, &streams, &backend), TENON_OK);
  device.fails = true;
  EXPECT_EQ(tenon_stream_synchronize(backend, 0), TENON_DEVICE_ERROR);
  EXPECT_THAT(tenon_last_error(), HasSubstr("returned 0"));
  EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
}

TEST(CInterfaceTest, ADlpackTensorOfADeviceThatTheHostReachesIsTheProcessors) {
  for (const int reachable : {1, 0}) {
    OwnDevice device;
    tenon_device_functions functions = functions_of(device);
    functions.host_can_reach = reachable;
    tenon_backend backend = 0;
    ASSERT_EQ(tenon_backend_custom(&functions, &backend), TENON_OK) << tenon_last_error();
    const tenon_allocator allocator = over(backend, "pool");
    void* const block = block_of(allocator, 24);
    const std::int64_t shape[] = {6};
    DLManagedTensorVersioned* tensor = nullptr;
    const tenon_status status =
        tenon_export_dlpack(allocator, block, kDLFloat, 32, shape, 1, &tensor);
    if (reachable != 0) {
      ASSERT_EQ(status, TENON_OK) << tenon_last_error();
      EXPECT_EQ(tensor->dl_tensor.device.device_type, kDLCPU);
      EXPECT_EQ(tensor->dl_tensor.device.device_id, 0);
      tensor->deleter(tensor);
    } else {
      EXPECT_EQ(status, TENON_INVALID_ARGUMENT);
      EXPECT_THAT(tenon_last_error(), HasSubstr("the host cannot reach"));
      EXPECT_EQ(tenon_free(allocator, block), TENON_OK);
    }
    EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_OK);
    EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
  }
}

TEST(CInterfaceTest, ADlpackTensorOwnsItsBlock) {
  tenon_backend host = 0;
  ASSERT_EQ(tenon_backend_host(&host), TENON_OK);
  const tenon_allocator allocator = over(host, "host");
  void* const block = block_of(allocator, 24);
  const std::int64_t shape[] = {2, 3};
  const std::int64_t large[] = {2, 4};
  const std::int64_t negative[] = {-1};
  DLManagedTensorVersioned* tensor = nullptr;
  EXPECT_EQ(tenon_export_dlpack(allocator, block, kDLFloat, 32, large, 2, &tensor),
            TENON_INVALID_ARGUMENT);
  EXPECT_EQ(tenon_export_dlpack(allocator, block, kDLFloat, 32, negative, 1, &tensor),
            TENON_INVALID_ARGUMENT);
  EXPECT_EQ(tenon_export_dlpack(allocator, block, kDLFloat, 12, shape, 2, &tensor),
            TENON_INVALID_ARGUMENT);
  EXPECT_EQ(tenon_export_dlpack(allocator, block, kDLFloat, 32, nullptr, 2, &tensor),
            TENON_INVALID_ARGUMENT);
  ASSERT_EQ(tenon_export_dlpack(allocator, block, kDLFloat, 32, shape, 2, &tensor), TENON_OK);
  EXPECT_EQ(tensor->version.major, kDLPackMajor);
  EXPECT_EQ(tensor->dl_tensor.data, block);
  EXPECT_EQ(tensor->dl_tensor.ndim, 2);
  EXPECT_EQ(tensor->dl_tensor.shape[1], 3);
  EXPECT_EQ(tensor->dl_tensor.strides[0], 3);
  EXPECT_EQ(tenon_free(allocator, block), TENON_INVALID_POINTER);
  EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_IN_USE);
  std::thread([&] { tensor->deleter(tensor); }).join();
  EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_OK) << tenon_last_error();
}

TEST(CInterfaceTest, AnObserverMayUseTheAllocator) {
  const tenon_backend backend = simulated(std::uint64_t{1} << 30);
  const tenon_allocator allocator = over(backend, "pool");
  struct Seen {
    tenon_allocator allocator;
    std::vector<int> kinds;
  } seen{allocator, {}};
  tenon_observer observer = 0;
  ASSERT_EQ(tenon_observer_add(
                allocator,
                [](void* context, const tenon_event* event) {
                  auto& self = *static_cast<Seen*>(context);
                  self.kinds.push_back(event->kind);
                  auto stats = sized<tenon_statistics>();
                  EXPECT_EQ(tenon_allocator_statistics(self.allocator, &stats), TENON_OK);
                },
                &seen, &observer),
            TENON_OK);
  EXPECT_EQ(tenon_free(allocator, block_of(allocator, 5000)), TENON_OK);
  EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_IN_USE);
  EXPECT_EQ(tenon_observer_remove(observer), TENON_OK);
  EXPECT_EQ(tenon_free(allocator, block_of(allocator, 5000)), TENON_OK);
  EXPECT_EQ(seen.kinds, (std::vector<int>{TENON_EVENT_MAPPED, TENON_EVENT_ALLOCATED,
                                          TENON_EVENT_FREED}));
  EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_OK);
  EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
}

TEST(CInterfaceTest, AnObserverMayRemoveItselfAndNotDestroyTheAllocator) {
  const tenon_backend backend = simulated(std::uint64_t{1} << 30);
  struct Seen {
    tenon_allocator allocator;
    tenon_observer observer = 0;
    int calls = 0;
  } seen{over(backend, "pool")};
  ASSERT_EQ(tenon_observer_add(
                seen.allocator,
                [](void* context, const tenon_event*) {
                  auto& self = *static_cast<Seen*>(context);
                  ++self.calls;
                  EXPECT_EQ(tenon_observer_remove(self.observer), TENON_OK);
                  EXPECT_EQ(tenon_allocator_destroy(self.allocator), TENON_IN_USE);
                  EXPECT_THAT(tenon_last_error(), HasSubstr("destroy it after that"));
                },
                &seen, &seen.observer),
            TENON_OK);
  EXPECT_EQ(tenon_free(seen.allocator, block_of(seen.allocator, 5000)), TENON_OK);
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(tenon_allocator_destroy(seen.allocator), TENON_OK) << tenon_last_error();
  EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
}

TEST(CInterfaceTest, ARecordingIsWrittenWhenItEnds) {
  const testing::TemporaryFile file("c.csv");
  tenon_recording recording = 0;
  EXPECT_EQ(tenon_recording_start("trace.xyz", &recording), TENON_INVALID_ARGUMENT);
  ASSERT_EQ(tenon_recording_start(file.path().c_str(), &recording), TENON_OK);
  const tenon_backend backend = simulated(std::uint64_t{1} << 30);
  const tenon_allocator allocator = over(backend, "pool");
  EXPECT_EQ(tenon_free(allocator, block_of(allocator, 12345)), TENON_OK);
  EXPECT_EQ(tenon_recording_finish(recording), TENON_OK) << tenon_last_error();
  EXPECT_EQ(tenon_recording_finish(recording), TENON_INVALID_HANDLE);
  tenon_traces traces = 0;
  ASSERT_EQ(tenon_traces_load(file.path().c_str(), &traces), TENON_OK) << tenon_last_error();
  auto summary = sized<tenon_trace_summary>();
  EXPECT_EQ(tenon_trace_summarize(traces, 0, &summary), TENON_OK);
  EXPECT_EQ(summary.live_peak_bytes, 12345u);
  EXPECT_EQ(summary.events, 2u);
  EXPECT_EQ(tenon_traces_destroy(traces), TENON_OK);
  EXPECT_EQ(tenon_allocator_destroy(allocator), TENON_OK);
  EXPECT_EQ(tenon_backend_destroy(backend), TENON_OK);
}

}  // namespace
}  // namespace tenon
