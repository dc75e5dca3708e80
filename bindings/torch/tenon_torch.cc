// The functions of libtenon_torch.so: what PyTorch's pluggable allocator calls, and what the Python
// module calls through ctypes.
//
// Errors: those that PyTorch calls throw PyTorch's own exceptions (pytorch_errors.h), but frees and
// the ends of pools, which run in destructors: they report on stderr. Those for ctypes return nonzero, and
// tenon_torch_error() says why.
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "asking_stack.h"
#include "device_memory.h"
#include "pytorch_errors.h"
#include "tenon/base/byte_size.h"
#include "tenon/trace/csv.h"

#define TENON_TORCH_API extern "C" __attribute__((visibility("default")))

namespace tenon::torch {
namespace {

constexpr int kMaxDevices = 64;

// PyTorch's OutOfMemoryObserver: device, bytes asked for, the most that may be held, bytes free.
using OutOfMemoryObserver = void (*)(int, unsigned long long, unsigned long long,
                                     unsigned long long);

// The process's settings and devices. Never destroyed: PyTorch frees blocks while the process ends.
struct Process {
  std::mutex mutex;
  std::optional<Settings> settings;  // once configured
  std::array<std::atomic<DeviceMemory*>, kMaxDevices> devices = {};
  std::string error;  // of the last call by ctypes, which holds Python's lock
  std::string answer;
  std::size_t log_entries = 0;
  std::atomic<OutOfMemoryObserver> observer{nullptr};  // asked before out of memory is thrown
  std::atomic<std::uint64_t> complaints{0};  // on stderr
};

Process& process() {
  static auto& instance = *new Process();
  return instance;
}

// PyTorch copies between devices without asking whose memory it is, and a mapped page is reached
// only by the devices that it was opened to. So devices of one process let each other in.
void introduce(DeviceMemory& first, DeviceMemory& second) {
  CudaBackend& a = first.backend();
  CudaBackend& b = second.backend();
  if (a.can_be_reached_by(b) && b.can_be_reached_by(a)) {
    a.allow_peer(b);
    b.allow_peer(a);
  } else if (process().settings.value_or(Settings{}).policy != "caching") {
    std::fprintf(stderr,
                 "tenon_torch: the hardware has no path between %s and %s; copies between them need "
                 "policy=\"caching\"\n",
                 to_string(a.device()).c_str(), to_string(b.device()).c_str());
  }
}

// Copies between devices without a path fail later, so a refused path is reported now.
void introduce_or_warn(DeviceMemory& first, DeviceMemory& second) {
  try {
    introduce(first, second);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tenon_torch: %s and %s cannot reach each other's memory: %s\n",
                 to_string(first.backend().device()).c_str(),
                 to_string(second.backend().device()).c_str(), error.what());
  }
}

// The driver is looked at here, at the first use of a device, and not by configure(): a script may
// set CUDA_VISIBLE_DEVICES or fork before that.
DeviceMemory& make_device(int index) {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  if (index < 0 || index >= kMaxDevices)
    throw InvalidArgument(fmt::format("there is no cuda:{}", index));
  DeviceMemory* made = p.devices[static_cast<std::size_t>(index)].load();
  if (made != nullptr) return *made;
  const Settings settings = p.settings.value_or(Settings{});
  CudaBackend& backend = cuda_backend(index);
  if (const std::uint64_t total = backend.memory().total_bytes; settings.limit_bytes > total)
    throw InvalidArgument(fmt::format(
        "the limit, {}, is larger than cuda:{}, which has {}; pass a smaller limit to enable()",
        format_byte_size(settings.limit_bytes), index, format_byte_size(total)));
  made = new DeviceMemory(backend, settings);
  if (p.log_entries != 0) made->log_events(p.log_entries);
  for (const auto& other : p.devices)
    if (DeviceMemory* there = other.load()) introduce_or_warn(*there, *made);
  p.devices[static_cast<std::size_t>(index)].store(made, std::memory_order_release);
  return *made;
}

DeviceMemory& device(int index) {
  if (index >= 0 && index < kMaxDevices) [[likely]] {
    DeviceMemory* made =
        process().devices[static_cast<std::size_t>(index)].load(std::memory_order_acquire);
    if (made != nullptr) [[likely]] return *made;
  }
  return make_device(index);
}

template <typename Visit>
void for_each_device(Visit&& visit) {
  for (const auto& made : process().devices)
    if (DeviceMemory* memory = made.load(std::memory_order_acquire)) visit(*memory);
}

// Runs what PyTorch called; what it throws becomes PyTorch's exception.
template <typename Call>
auto for_pytorch(const char* function, Call&& call) -> decltype(call()) {
  std::string lack, failure;
  try {
    return call();
  } catch (const OutOfMemory& error) {
    lack = fmt::format("CUDA out of memory. {}", error.what());
  } catch (const std::exception& error) {
    failure = fmt::format("{}: {}", function, error.what());
  }
  if (!lack.empty()) throw_out_of_memory(lack);
  throw_error(failure);
}

// Runs what ctypes called: 0, or 1 and an error.
template <typename Call>
int for_python(Call&& call) {
  try {
    call();
    return 0;
  } catch (const InvalidArgument& error) {
    process().error = error.what();
    return 2;
  } catch (const std::exception& error) {
    process().error = error.what();
    return 1;
  }
}

// The end of a process, or of a device: what is freed then is forgotten without complaint.
bool is_over(const std::exception& error) {
  const auto* refusal = dynamic_cast<const CudaError*>(&error);
  return refusal != nullptr && refusal->is_device_lost();
}

void complain(const std::string& what) {
  // A hundred say what is wrong; a million of them would say no more.
  if (process().complaints.fetch_add(1) < 100)
    std::fprintf(stderr, "tenon_torch: %s\n", what.c_str());
}

// Runs what PyTorch calls in destructors, where an exception would end the process: what is thrown
// is said on stderr. In a forked child nothing is done: everything is the parent's.
template <typename Call>
void for_destructor(const char* function, int index, Call&& call) {
  try {
    DeviceMemory& memory = device(index);
    if (memory.backend().driver().is_same_process()) [[likely]] call(memory);
  } catch (const std::exception& error) {
    if (!is_over(error)) complain(fmt::format("{}: {}", function, error.what()));
  }
}

// Only policies that keep a block from reuse while other streams use it.
void require_streams(const std::string& policy) {
  find_policy(policy);
  for (const char* known : {"stitched", "caching", "expandable", "unified"})
    if (policy == known) return;
  throw InvalidArgument(fmt::format("policy \"{}\" supports only a block's own stream, so PyTorch "
                                    "cannot use it safely: take stitched, caching, expandable or "
                                    "unified",
                                    policy));
}

// Two copies of this library would each hold memory that the other cannot free.
void require_only_library(const std::string& path) {
  constexpr const char* kVariable = "TENON_TORCH_IN_USE";
  const std::string mine = fmt::format("{}:{}", ::getpid(), path);
  const char* used = std::getenv(kVariable);
  const std::string prefix = fmt::format("{}:", ::getpid());
  if (used != nullptr && std::string_view(used).starts_with(prefix) && mine != used)
    throw std::runtime_error(fmt::format("another libtenon_torch.so is in use in this process: {}",
                                         std::string_view(used).substr(prefix.size())));
  ::setenv(kVariable, mine.c_str(), 1);
}

void configure(const char* policy, const char* limit, const char* conf, const char* path,
               bool shareable_pools) {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  Settings settings;
  settings.policy = policy;
  settings.conf = conf;
  settings.shareable_pools = shareable_pools;
  if (*limit != '\0') settings.limit_bytes = parse_byte_size(limit);
  require_streams(settings.policy);
  parse_caching_settings(settings.conf);
  check_options(find_policy(settings.policy), {.conf = settings.conf});
  if (*limit != '\0' && settings.limit_bytes == 0)
    throw InvalidArgument("a limit of 0 leaves no memory at all");
  if (p.settings)
    throw std::runtime_error(
        fmt::format("tenon_torch is enabled already, with policy {}", p.settings->policy));
  require_only_library(path);
  p.settings = settings;
}

}  // namespace
}  // namespace tenon::torch

using namespace tenon;
using namespace tenon::torch;

// ------------------------------------------------------------------------------------------------
// For torch.cuda.memory.CUDAPluggableAllocator

TENON_TORCH_API void* tenon_malloc(ssize_t size, int index, cu::Stream stream) {
  return for_pytorch("tenon_malloc", [&] {
    const AskingStack stack;
    DeviceMemory& memory = device(index);
    const auto size_bytes = static_cast<std::uint64_t>(size);
    try {
      return memory.allocate(size_bytes, stream);
    } catch (const OutOfMemory&) {
      if (const OutOfMemoryObserver observer = process().observer.load())
        observer(index, size_bytes, memory.most_bytes(), memory.backend().memory().free_bytes);
      throw;
    }
  });
}

TENON_TORCH_API void tenon_free(void* data, ssize_t, int index, cu::Stream) {
  for_destructor("tenon_free", index, [&](DeviceMemory& memory) {
    if (!memory.free(data)) complain(fmt::format("{} is not held by tenon_torch", fmt::ptr(data)));
  });
}

TENON_TORCH_API void tenon_init(int) {}  // devices are set up when they are first used

TENON_TORCH_API void tenon_reset() {
  for_pytorch("tenon_reset",
              [] { for_each_device([](DeviceMemory& memory) { memory.empty_cache(); }); });
}

TENON_TORCH_API void tenon_memory_fraction(double fraction, int index) {
  for_pytorch("tenon_memory_fraction", [&] { device(index).set_fraction(fraction); });
}

TENON_TORCH_API void* tenon_base_alloc(void* data, std::size_t* size) {
  return for_pytorch("tenon_base_alloc", [&] {
    void* base = nullptr;
    for_each_device([&](DeviceMemory& memory) {
      if (base == nullptr) base = memory.base_of(data, size);
    });
    if (base == nullptr)
      throw InvalidPointer(fmt::format("{} is not held by tenon_torch", fmt::ptr(data)));
    return base;
  });
}

TENON_TORCH_API void tenon_record_stream(void* data, cu::Stream stream) {
  for_pytorch("tenon_record_stream", [&] {
    std::vector<DeviceMemory*> devices;
    for_each_device([&](DeviceMemory& memory) { devices.push_back(&memory); });
    for (DeviceMemory* memory : devices)
      if (memory->record_stream(data, stream, devices)) return;
    // Not found: a tensor over another library's memory (DLPack). Its owner sees to its streams;
    // PyTorch's own allocator passes over it, too.
  });
}

TENON_TORCH_API void tenon_begin_allocate_to_pool(int index, PoolId id, StreamFilter filter) {
  for_pytorch("tenon_begin_allocate_to_pool",
              [&] { device(index).begin_pool(id, std::move(filter)); });
}

TENON_TORCH_API void tenon_end_allocate_to_pool(int index, PoolId id) {
  for_destructor("tenon_end_allocate_to_pool", index,
                 [&](DeviceMemory& memory) { memory.end_pool(id); });
}

TENON_TORCH_API void tenon_release_pool(int index, PoolId id) {
  for_destructor("tenon_release_pool", index,
                 [&](DeviceMemory& memory) { memory.release_pool(id); });
}

// ------------------------------------------------------------------------------------------------
// For the Python module

// 0; or 2 for a bad argument, 1 for any other failure, and tenon_torch_error() says what.
TENON_TORCH_API int tenon_torch_configure(const char* policy, const char* limit, const char* conf,
                                          const char* path, int shareable_pools) {
  return for_python([&] { configure(policy, limit, conf, path, shareable_pools != 0); });
}

// For an enable that PyTorch refused afterwards. Requires: nothing was allocated.
TENON_TORCH_API void tenon_torch_cancel() {
  const std::lock_guard lock(process().mutex);
  process().settings.reset();
}

TENON_TORCH_API const char* tenon_torch_error() { return process().error.c_str(); }

// What the last of the next ones found, as JSON. Valid until the next call.
TENON_TORCH_API const char* tenon_torch_answer() { return process().answer.c_str(); }

TENON_TORCH_API int tenon_torch_stats(int index) {
  return for_python([&] { process().answer = device(index).stats().dump(); });
}

TENON_TORCH_API int tenon_torch_snapshot() {
  return for_python([] {
    nlohmann::json out = {{"segments", nlohmann::json::array()},
                          {"device_traces", nlohmann::json::array()}};
    for_each_device([&](DeviceMemory& memory) {
      nlohmann::json part = memory.snapshot();
      for (nlohmann::json& segment : part["segments"]) out["segments"].push_back(segment);
      while (out["device_traces"].size() <
             static_cast<std::size_t>(memory.backend().device().index))
        out["device_traces"].push_back(nlohmann::json::array());
      out["device_traces"].push_back(part["trace"]);
    });
    process().answer = out.dump();
  });
}

TENON_TORCH_API int tenon_torch_reset_peaks(int index) {
  return for_python([&] { device(index).reset_peaks(); });
}

TENON_TORCH_API int tenon_torch_empty_cache() {
  return for_python([] { for_each_device([](DeviceMemory& memory) { memory.empty_cache(); }); });
}

TENON_TORCH_API int tenon_torch_set_fraction(double fraction, int index) {
  return for_python([&] { device(index).set_fraction(fraction); });
}

TENON_TORCH_API int tenon_torch_fraction(int index) {
  return for_python([&] { process().answer = fmt::format("{}", device(index).fraction()); });
}

// The observer is called on the thread that runs out of memory, with no lock held; null: none.
TENON_TORCH_API void tenon_torch_observe_out_of_memory(OutOfMemoryObserver observer) {
  process().observer = observer;
}

// One more user of a private pool; tenon_release_pool takes it away.
TENON_TORCH_API int tenon_torch_retain_pool(int index, unsigned long long first,
                                            unsigned long long second) {
  return for_python([&] { device(index).retain_pool({first, second}); });
}

TENON_TORCH_API int tenon_torch_pool_users(int index, unsigned long long first,
                                           unsigned long long second) {
  return for_python(
      [&] { process().answer = fmt::format("{}", device(index).pool_users({first, second})); });
}

// From now on the source numbers the stack of each request. The snapshot has it as "stack".
TENON_TORCH_API void tenon_torch_stack_source(StackSource source) {
  AskingStack::set_source(source);
}

TENON_TORCH_API int tenon_torch_log_events(std::size_t max_entries) {
  return for_python([&] {
    process().log_entries = max_entries;
    for_each_device([&](DeviceMemory& memory) { memory.log_events(max_entries); });
  });
}

TENON_TORCH_API int tenon_torch_start_recording(int index, const char* name) {
  return for_python([&] { device(index).start_recording(name); });
}

TENON_TORCH_API int tenon_torch_stop_recording(int index, const char* path) {
  return for_python([&] { write_csv(device(index).stop_recording(), path); });
}
