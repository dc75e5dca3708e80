#include "tenon/device/vulkan/vulkan_backend.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/environment.h"
#include "tenon/device/address_table.h"
#include "tenon/device/os/os_memory.h"
#include "tenon/device/vulkan/vulkan_contents.h"
#include "tenon/device/vulkan/vulkan_device.h"
#include "tenon/device/vulkan/vulkan_kernels.h"
#include "tenon/device/vulkan/vulkan_streams.h"
#include "tenon/device/vulkan/vulkan_texels.h"

namespace tenon {

struct VulkanBackend::State {
  struct Placed {
    VulkanBuffer buffer;
    bool reserved = false;  // the segment's addresses are reserved: the host cannot reach it
  };

  State(std::shared_ptr<const VulkanDriver> driver, Device device, const VulkanOptions& options)
      : vulkan(std::move(driver), device.index),
        unified(vulkan.has_one_memory() && !options.stage_always),
        streams(vulkan, device),
        contents(vulkan, streams, options.stage_always),
        texels(vulkan),
        kernels(vulkan, texels) {}

  // Where the bytes are; host memory where they begin in no segment.
  VulkanPlace place_of(const char* call, const void* address, std::uint64_t size_bytes) const {
    if (!table.require_accessible(call, address, size_bytes)) return {};
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto found = std::prev(segments.upper_bound(at));
    return {&found->second.buffer, at - found->first};
  }
  // The same for work: DeviceError where a rehearsal reserved the addresses.
  VulkanPlace memory_of(const char* call, const void* address, std::uint64_t size_bytes) const {
    const VulkanPlace place = place_of(call, address, size_bytes);
    if (place.buffer != nullptr && place.buffer->buffer == VK_NULL_HANDLE)
      raise<DeviceError>("{}({}): there is no memory, only addresses for a rehearsal", call,
                         address);
    return place;
  }

  void give_back(std::uintptr_t base, const Placed& placed) {
    if (placed.reserved) os::release(reinterpret_cast<void*>(base), placed.buffer.size_bytes);
    texels.forget(placed.buffer);
    vulkan.destroy_buffer(placed.buffer);
  }

  // Of the segment there. Throws InvalidArgument where it has no texels.
  VkDescriptorSet texels_of(const void* address) {
    const VulkanPlace place = memory_of("launch", address, 1);
    if (place.buffer == nullptr || !texels.texel_at(*place.buffer, place.offset))
      raise<InvalidArgument>("launch: no texel begins at {}; give addresses that texel_at finds",
                             address);
    return texels.set_of(*place.buffer);
  }

  VulkanDevice vulkan;
  const bool unified;
  mutable std::mutex mutex;  // all below
  AddressTable table{0, false};
  std::map<std::uintptr_t, Placed> segments;  // by base
  std::uint64_t held = 0;                     // bytes of the heap of device memory
  VulkanStreams streams;
  VulkanContents contents;
  VulkanTexels texels;
  VulkanKernels kernels;
  std::map<std::uint64_t, std::pair<Stream, std::vector<VkCommandBuffer>>> captures;
  std::uint64_t captures_made = 0;
  DriverPurpose purpose = DriverPurpose::kGrowth;
  DriverLedger ledger;
};

// Counts a driver call and charges its time. The lock is taken for the whole call, or, for a wait,
// to count it.
class VulkanBackend::TimedCall {
 public:
  TimedCall(State& state, DriverCall call)
      : lock(state.mutex), state_(state), call_(call), start_(std::chrono::steady_clock::now()) {
    state.vulkan.driver().require_same_process();
  }
  ~TimedCall() {
    if (!lock.owns_lock()) lock.lock();
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    const auto ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
    ++state_.ledger.calls[static_cast<std::size_t>(call_)];
    state_.ledger.stall_ns += ns;
    if (state_.purpose == DriverPurpose::kMoving) state_.ledger.moving_stall_ns += ns;
  }
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;

  std::unique_lock<std::mutex> lock;

 private:
  State& state_;
  const DriverCall call_;
  const std::chrono::steady_clock::time_point start_;
};

VulkanBackend::VulkanBackend(std::shared_ptr<const VulkanDriver> driver, int index,
                             const VulkanOptions& options)
    : device_{DeviceType::kVulkan, static_cast<std::int16_t>(index)},
      state_(std::make_unique<State>(std::move(driver), device_, options)) {
  const VkPhysicalDeviceProperties& properties = state_->vulkan.properties();
  limits_.alignment = properties.limits.minMemoryMapAlignment;
  limits_.recommended_working_set_bytes = state_->vulkan.heap_bytes();
  limits_.unified = state_->unified;
  const std::uint32_t most = properties.limits.maxMemoryAllocationCount;
  description_ = fmt::format(
      "{}, Vulkan {}.{}, {}, {}, {} queue{}, segments of at most {}{}", properties.deviceName,
      VK_API_VERSION_MAJOR(properties.apiVersion), VK_API_VERSION_MINOR(properties.apiVersion),
      format_byte_size(state_->vulkan.heap_bytes()),
      limits_.unified ? "one memory with the host" : "its own memory",
      state_->vulkan.queues().size(), state_->vulkan.queues().size() == 1 ? "" : "s",
      format_byte_size(state_->vulkan.most_bytes_at_once()),
      most == UINT32_MAX ? "" : fmt::format(", at most {} of them", most));
}

VulkanBackend::~VulkanBackend() {
  if (!state_->vulkan.driver().is_same_process()) {  // the parent's, all of it
    static_cast<void>(state_.release());
    return;
  }
  ignore_refusal([&] { synchronize(); });
  for (const auto& [base, placed] : state_->segments) state_->give_back(base, placed);
}

std::uint64_t VulkanBackend::device_address(const void* address) const {
  const std::lock_guard lock(state_->mutex);
  const VulkanPlace place = state_->place_of("device_address", address, 1);
  if (place.buffer == nullptr)
    raise<DeviceError>("device_address({}): {} has no such memory", address, to_string(device_));
  if (place.buffer->buffer == VK_NULL_HANDLE && !state_->streams.any_rehearsed())
    raise<DeviceError>("device_address({}): there is no memory, only addresses for a rehearsal",
                       address);
  return place.buffer->address + place.offset;
}

std::optional<std::uint32_t> VulkanBackend::texel_at(const void* address) const {
  const std::lock_guard lock(state_->mutex);
  const VulkanPlace place = state_->place_of("texel_at", address, 1);
  if (place.buffer == nullptr) return std::nullopt;
  return state_->texels.texel_at(*place.buffer, place.offset);
}

std::uint64_t VulkanBackend::submissions() const {
  const std::lock_guard lock(state_->mutex);
  return state_->streams.submissions();
}

BackendMemory VulkanBackend::memory() const {
  state_->vulkan.driver().require_same_process();
  const std::lock_guard lock(state_->mutex);
  return {state_->vulkan.heap_bytes(), state_->vulkan.free_bytes(state_->held)};
}

std::uint64_t VulkanBackend::total_bytes() const { return state_->vulkan.heap_bytes(); }

// --- Segments.

std::optional<Segment> VulkanBackend::allocate_segment(std::uint64_t size_bytes, MemoryKind kind) {
  const TimedCall call(*state_, DriverCall::kAllocate);
  state_->table.require_segment_size(size_bytes);
  const auto type = state_->vulkan.type_of(kind);
  if (!type || (kind == MemoryKind::kShared && !state_->unified))
    raise<DeviceError>(
        "allocate_segment({}): {} has no memory of this kind; ask for device or pinned memory",
        size_bytes, to_string(device_));
  if (size_bytes > kMaxRequestBytes) return std::nullopt;
  const std::uint64_t rounded = align_up(size_bytes, limits_.alignment);
  const auto buffer = state_->vulkan.create_buffer(rounded, *type);
  if (!buffer) return std::nullopt;
  const bool reached = buffer->mapped != nullptr &&
                       (kind == MemoryKind::kPinned || state_->unified);
  void* base = buffer->mapped;
  if (!reached) base = os::reserve(rounded, os::page_size());
  if (base == nullptr) {
    state_->vulkan.destroy_buffer(*buffer);
    return std::nullopt;
  }
  const auto at = reinterpret_cast<std::uintptr_t>(base);
  state_->segments.emplace(at, State::Placed{*buffer, !reached});
  if (buffer->heap == state_->vulkan.type_of(MemoryKind::kDevice)->heap) state_->held += rounded;
  return Segment{base, reached ? base : nullptr, rounded, state_->table.add_segment(at, rounded),
                 kind};
}

std::optional<Segment> VulkanBackend::reserve_segment(std::uint64_t size_bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->table.require_segment_size(size_bytes);
  if (size_bytes > kMaxRequestBytes) return std::nullopt;
  const std::uint64_t rounded = align_up(size_bytes, limits_.alignment);
  void* const base = os::reserve(rounded, os::page_size());
  if (base == nullptr) return std::nullopt;
  const auto at = reinterpret_cast<std::uintptr_t>(base);
  VulkanBuffer nothing;
  nothing.address = at;
  nothing.size_bytes = rounded;
  nothing.heap = VK_MAX_MEMORY_HEAPS;
  state_->segments.emplace(at, State::Placed{nothing, true});
  return Segment{base, nullptr, rounded, state_->table.add_segment(at, rounded)};
}

void VulkanBackend::release_reserved(const Segment& segment) {
  const std::lock_guard lock(state_->mutex);
  state_->table.require_segment(segment);
  os::release(segment.base, segment.size_bytes);
  state_->segments.erase(reinterpret_cast<std::uintptr_t>(segment.base));
  state_->table.remove_segment(segment);
}

void VulkanBackend::free_segment(const Segment& segment) {
  const TimedCall call(*state_, DriverCall::kFree);
  state_->table.require_segment(segment);
  try {
    VulkanStreams::wait(state_->vulkan, state_->streams.submitted_ends());
  } catch (const VulkanError& error) {
    if (!error.is_device_lost()) throw;
  }
  const auto found = state_->segments.find(reinterpret_cast<std::uintptr_t>(segment.base));
  if (found->second.buffer.heap == state_->vulkan.type_of(MemoryKind::kDevice)->heap)
    state_->held -= found->second.buffer.size_bytes;
  state_->give_back(found->first, found->second);
  state_->segments.erase(found);
  state_->table.remove_segment(segment);
}

// --- Virtual memory.

void VulkanBackend::refuse_virtual_memory(const char* call) const {
  raise<DeviceError>("{}: {} has no virtual memory; use policy unified or pool", call,
                     to_string(device_));
}

std::optional<AddressRange> VulkanBackend::reserve_address(std::uint64_t) {
  refuse_virtual_memory("reserve_address");
}
void VulkanBackend::release_address(AddressRange) { refuse_virtual_memory("release_address"); }
std::optional<PageHandle> VulkanBackend::create_pages(std::uint64_t) {
  refuse_virtual_memory("create_pages");
}
void VulkanBackend::release_pages(PageHandle) { refuse_virtual_memory("release_pages"); }
bool VulkanBackend::map(std::uintptr_t, PageHandle) { refuse_virtual_memory("map"); }
bool VulkanBackend::set_access(std::uintptr_t, std::uint64_t) {
  refuse_virtual_memory("set_access");
}
void VulkanBackend::unmap(std::uintptr_t, PageHandle) { refuse_virtual_memory("unmap"); }

// --- Contents.

void VulkanBackend::copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) {
  state_->vulkan.driver().require_same_process();
  std::unique_lock lock(state_->mutex);
  state_->streams.require("copy", stream);
  if (size_bytes == 0) return;
  if (state_->streams.is_rehearsed(stream)) {
    if (state_->place_of("copy to", dest, size_bytes).buffer != nullptr &&
        state_->place_of("copy from", src, size_bytes).buffer != nullptr)
      return;
    raise<DeviceError>("copy({}, {}, {}): a capture records no copy to or from the host", dest,
                       src, size_bytes);
  }
  const VulkanPlace to = state_->memory_of("copy to", dest, size_bytes);
  const VulkanPlace from = state_->memory_of("copy from", src, size_bytes);
  if (to.buffer != nullptr && from.buffer != nullptr)
    return state_->contents.copy(to, from, size_bytes, stream);
  if (dest == nullptr || src == nullptr)
    raise<DeviceError>("copy({}, {}, {}): there is no memory at null", dest, src, size_bytes);
  if (to.buffer != nullptr)
    return state_->contents.upload(to, static_cast<const std::byte*>(src), size_bytes, stream);
  if (from.buffer != nullptr)
    return state_->contents.download(static_cast<std::byte*>(dest), from, size_bytes, stream, lock);
  const VulkanPoint end = state_->streams.submitted_end("copy", stream);
  lock.unlock();
  VulkanStreams::wait(state_->vulkan, {end});
  std::memmove(dest, src, size_bytes);
}

void VulkanBackend::fill(void* dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream) {
  state_->vulkan.driver().require_same_process();
  const std::lock_guard lock(state_->mutex);
  state_->streams.require("fill", stream);
  if (size_bytes == 0) return;
  const bool is_rehearsed = state_->streams.is_rehearsed(stream);
  const VulkanPlace to = is_rehearsed ? state_->place_of("fill", dest, size_bytes)
                                      : state_->memory_of("fill", dest, size_bytes);
  if (to.buffer == nullptr)
    raise<DeviceError>("fill({}, {} bytes): {} has no such memory", dest, size_bytes,
                       to_string(device_));
  if (is_rehearsed) return;
  state_->contents.fill(to, value, size_bytes, stream);
}

// --- Kernels.

void VulkanBackend::launch(const VulkanKernel& kernel, std::span<const std::byte> arguments,
                           std::array<std::uint32_t, 3> groups, Stream stream,
                           std::array<const void*, 2> texels) {
  State& state = *state_;
  state.vulkan.driver().require_same_process();
  const auto& most = state.vulkan.properties().limits.maxComputeWorkGroupCount;
  if (arguments.size() > VulkanKernels::kArgumentBytes || arguments.size() % 4 != 0)
    raise<InvalidArgument>("launch: {} bytes of arguments; they are words, {} bytes at " "most",
                           arguments.size(), VulkanKernels::kArgumentBytes);
  if (groups[0] > most[0] || groups[1] > most[1] || groups[2] > most[2])
    raise<InvalidArgument>("launch: {} x {} x {} groups on {}, which takes {} x {} x {}", groups[0],
                           groups[1], groups[2], to_string(device_), most[0], most[1], most[2]);
  const std::lock_guard lock(state.mutex);
  state.streams.require("launch", stream);
  if (state.streams.is_rehearsed(stream)) return;
  VulkanKernels::Sets sets = {};
  if (kernel.reads_texels) sets = {state.texels_of(texels[0]), state.texels_of(texels[1])};
  const VkPipeline pipeline = state.kernels.pipeline_of(kernel);
  state.kernels.record(state.streams.begin_command("launch", stream), pipeline, arguments, groups,
                       sets);
  state.streams.end_command(stream, std::uint64_t{groups[0]} * groups[1] * groups[2]);
}

void VulkanBackend::begin_capture(Stream stream, Captures captures) {
  state_->vulkan.driver().require_same_process();
  const std::lock_guard lock(state_->mutex);
  state_->streams.begin_capture(stream, captures == Captures::kNothing);
}

std::uint64_t VulkanBackend::end_capture(Stream stream) {
  const std::lock_guard lock(state_->mutex);
  state_->captures.emplace(++state_->captures_made,
                           std::pair(stream, state_->streams.end_capture(stream)));
  return state_->captures_made;
}

void VulkanBackend::run_capture(std::uint64_t capture) {
  state_->vulkan.driver().require_same_process();
  const std::lock_guard lock(state_->mutex);
  const auto& [stream, batches] = state_->captures.at(capture);
  state_->streams.submit_again(stream, batches);
}

void VulkanBackend::drop_capture(std::uint64_t capture) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->captures.find(capture);
  state_->streams.forget(found->second.first, found->second.second);
  state_->captures.erase(found);
}

const VulkanAbilities& VulkanBackend::abilities() const { return state_->vulkan.abilities(); }

std::uint64_t VulkanBackend::pipelines() const {
  const std::lock_guard lock(state_->mutex);
  return state_->kernels.count();
}

// --- Streams and events.

Stream VulkanBackend::create_stream() {
  state_->vulkan.driver().require_same_process();
  const std::lock_guard lock(state_->mutex);
  return state_->streams.create();
}

void VulkanBackend::destroy_stream(Stream stream) {
  const std::lock_guard lock(state_->mutex);
  state_->streams.destroy(stream);
}

Event VulkanBackend::record(Stream stream) {
  const TimedCall call(*state_, DriverCall::kEventRecord);
  return state_->streams.record(stream);
}

bool VulkanBackend::query(Event event) {
  const TimedCall call(*state_, DriverCall::kEventQuery);
  return state_->streams.query(event);
}

void VulkanBackend::wait(Event event) {
  TimedCall call(*state_, DriverCall::kHostWait);
  const VulkanPoint point = state_->streams.point_of("wait", event);
  call.lock.unlock();
  if (point.timeline != VK_NULL_HANDLE) VulkanStreams::wait(state_->vulkan, {point});
}

void VulkanBackend::stream_wait(Stream stream, Event event) {
  const TimedCall call(*state_, DriverCall::kStreamWait);
  state_->streams.stream_wait(stream, event);
}

void VulkanBackend::destroy_event(Event event) {
  const std::lock_guard lock(state_->mutex);
  state_->streams.destroy(event);
}

void VulkanBackend::synchronize(Stream stream) {
  TimedCall call(*state_, DriverCall::kHostWait);
  const VulkanPoint end = state_->streams.submitted_end("synchronize", stream);
  call.lock.unlock();
  VulkanStreams::wait(state_->vulkan, {end});
}

void VulkanBackend::synchronize() {
  TimedCall call(*state_, DriverCall::kHostWait);
  const auto ends = state_->streams.submitted_ends();
  call.lock.unlock();
  VulkanStreams::wait(state_->vulkan, ends);
}

// --- Accounts.

DriverLedger VulkanBackend::ledger() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ledger;
}

void VulkanBackend::set_purpose(DriverPurpose purpose) {
  const std::lock_guard lock(state_->mutex);
  state_->purpose = purpose;
}

// --- The process's devices.

namespace {

// Never destroyed: memory may be freed while static objects are destroyed.
struct ProcessBackends {
  std::mutex mutex;
  std::map<int, VulkanBackend*> by_index;
};
ProcessBackends& process_backends() {
  static auto& backends = *new ProcessBackends();
  return backends;
}

// A driver's threads may compute until here, and no longer: SwiftShader's crash once its static
// objects are destroyed. Those are older than this handler, so they are destroyed after it.
void wait_at_exit() {
  if (!VulkanDriver::standard()->is_same_process()) return;
  ProcessBackends& backends = process_backends();
  const std::lock_guard lock(backends.mutex);
  for (const auto& entry : backends.by_index)
    ignore_refusal([&] { entry.second->synchronize(); });
}

}  // namespace

VulkanBackend& vulkan_backend(int index) {
  const auto driver = VulkanDriver::standard();
  driver->require_same_process();
  const VulkanOptions options = {.stage_always = environment_value("TENON_VULKAN_STAGE") == "1"};
  ProcessBackends& backends = process_backends();
  const std::lock_guard lock(backends.mutex);
  auto found = backends.by_index.find(index);
  if (found != backends.by_index.end()) return *found->second;
  auto made = std::make_unique<VulkanBackend>(driver, index, options);
  if (backends.by_index.empty()) std::atexit(wait_at_exit);
  return *backends.by_index.emplace(index, made.release()).first->second;
}

}  // namespace tenon
