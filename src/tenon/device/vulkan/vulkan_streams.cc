#include "tenon/device/vulkan/vulkan_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tenon/base/reserve.h"

namespace tenon {
namespace {

const VkAllocationCallbacks* const kStandard = nullptr;
// Of every command: kernels, copies and fills.
constexpr VkPipelineStageFlags kStages =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;

VkMemoryBarrier barrier(VkAccessFlags later) {
  VkMemoryBarrier made = {};
  made.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  made.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT;
  made.dstAccessMask = later;
  return made;
}

}  // namespace

VulkanStreams::VulkanStreams(VulkanDevice& vulkan, Device device)
    : vulkan_(vulkan), device_(device) {
  streams_.push_back(make_stream());
}

VulkanStreams::~VulkanStreams() {
  const VulkanDeviceFunctions& vk = vulkan_.functions();
  // A driver's thread may still use a semaphore that has reached its value.
  vk.DeviceWaitIdle(vulkan_.handle());
  for (const StreamState& stream : streams_) {
    vk.DestroyCommandPool(vulkan_.handle(), stream.pool, nullptr);
    vk.DestroySemaphore(vulkan_.handle(), stream.timeline, nullptr);
  }
}

VulkanStreams::StreamState VulkanStreams::make_stream() {
  const VulkanDeviceFunctions& vk = vulkan_.functions();
  StreamState made;
  made.queue = vulkan_.queues()[streams_.size() % vulkan_.queues().size()];
  VkSemaphoreTypeCreateInfo type = {};
  type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo semaphore = {};
  semaphore.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
  semaphore.pNext = &type;
  VkCommandPoolCreateInfo pool = {};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = vulkan_.queue_family();
  call_vulkan(vk.CreateSemaphore, to_string(device_), vulkan_.handle(), &semaphore, kStandard,
              &made.timeline);
  const VkResult result = vk.CreateCommandPool(vulkan_.handle(), &pool, kStandard, &made.pool);
  if (result != VK_SUCCESS) {
    vk.DestroySemaphore(vulkan_.handle(), made.timeline, nullptr);
    fail_vulkan(vk.CreateCommandPool.name, to_string(device_), result);
  }
  return made;
}

// A destroyed stream keeps its number; the next stream reuses its Vulkan objects.
Stream VulkanStreams::create() {
  const auto idle = std::find_if(streams_.begin(), streams_.end(), [&](StreamState& stream) {
    return !stream.exists && stream.timeline != VK_NULL_HANDLE && has_reached(stream, stream.end());
  });
  if (idle == streams_.end()) {
    streams_.push_back(make_stream());
  } else {
    const auto idle_index = idle - streams_.begin();
    recycle(*idle);
    streams_.push_back(*idle);
    streams_.back().exists = true;
    StreamState& gone = streams_[static_cast<std::size_t>(idle_index)];
    const std::uint64_t reached = gone.submitted;
    gone = StreamState{};
    gone.submitted = gone.done = reached;
    gone.exists = false;
  }
  return Stream{device_, static_cast<std::uint32_t>(streams_.size() - 1)};
}

void VulkanStreams::destroy(Stream stream) {
  StreamState& state = find_queued("destroy_stream", stream);
  if (stream.id == 0)
    raise<DeviceError>("destroy_stream({}): the default stream stays", to_string(stream));
  submit_up_to(state, state.end());
  state.exists = false;
}

VulkanStreams::StreamState& VulkanStreams::find(const char* call, Stream stream) const {
  if (stream.device == device_ && stream.id < streams_.size() && streams_[stream.id].exists)
      [[likely]]
    return streams_[stream.id];
  raise<DeviceError>("{}({}): {} has no such stream (any more)", call, to_string(stream),
                     to_string(device_));
}

VulkanStreams::StreamState& VulkanStreams::find_queued(const char* call, Stream stream) const {
  StreamState& state = find(call, stream);
  if (state.is_captured) [[unlikely]]
    raise<DeviceError>("{}({}): a capture records the stream, so nothing runs there "
                       "that the host could wait for; do it before or after it", call,
                       to_string(stream));
  return state;
}

// --- Commands.

void VulkanStreams::recycle(StreamState& stream) {
  while (!stream.in_flight.empty() && stream.in_flight.front().first <= stream.done) {
    stream.spare.push_back(stream.in_flight.front().second);
    stream.in_flight.pop_front();
  }
}

void VulkanStreams::begin_batch(StreamState& stream) {
  const VulkanDeviceFunctions& vk = vulkan_.functions();
  if (stream.spare.empty() && !stream.in_flight.empty()) {
    has_reached(stream, stream.in_flight.front().first);
    recycle(stream);
  }
  reserve_more(stream.spare);  // so that a batch returns to the list without allocating
  if (stream.spare.empty()) {
    VkCommandBufferAllocateInfo info = {};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    info.commandPool = stream.pool;
    info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    info.commandBufferCount = 1;
    VkCommandBuffer made = nullptr;
    call_vulkan(vk.AllocateCommandBuffers, to_string(device_), vulkan_.handle(), &info, &made);
    stream.spare.push_back(made);
  }
  VkCommandBufferBeginInfo begin = {};
  begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  begin.flags = stream.is_captured ? VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
                                   : VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  call_vulkan(vk.BeginCommandBuffer, to_string(device_), stream.spare.back(), &begin);
  stream.open = stream.spare.back();
  stream.spare.pop_back();
  stream.commands = 0;
  stream.groups = 0;
  stream.ended = false;
}

VkCommandBuffer VulkanStreams::begin_command(const char* call, Stream stream) {
  StreamState& state = find(call, stream);
  const bool is_full = state.commands >= kMostCommands || state.groups >= kMostGroups;
  if (state.is_captured && is_full) close_captured(state);
  if (state.open != nullptr && (state.ended || is_full)) submit(state);
  if (state.open == nullptr) begin_batch(state);
  const VkMemoryBarrier all =
      barrier(VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
  vulkan_.functions().CmdPipelineBarrier(
      state.open, kStages, kStages, VkDependencyFlags{0}, 1u, &all, 0u,
      static_cast<const VkBufferMemoryBarrier*>(nullptr), 0u,
      static_cast<const VkImageMemoryBarrier*>(nullptr));
  return state.open;
}

void VulkanStreams::end_command(Stream stream, std::uint64_t groups) {
  ++streams_[stream.id].commands;
  streams_[stream.id].groups += groups;
}

// A host that waits for the batch sees its writes.
void VulkanStreams::end_batch(StreamState& stream) {
  const VulkanDeviceFunctions& vk = vulkan_.functions();
  const VkMemoryBarrier to_host = barrier(VK_ACCESS_HOST_READ_BIT);
  vk.CmdPipelineBarrier(stream.open, kStages, VK_PIPELINE_STAGE_HOST_BIT, VkDependencyFlags{0}, 1u,
                        &to_host, 0u,
                        static_cast<const VkBufferMemoryBarrier*>(nullptr), 0u,
                        static_cast<const VkImageMemoryBarrier*>(nullptr));
  const VkResult result = vk.EndCommandBuffer(stream.open);
  stream.ended = true;
  if (result == VK_SUCCESS) return;
  stream.spare.push_back(std::exchange(stream.open, nullptr));
  fail_vulkan(vk.EndCommandBuffer.name,
              fmt::format("{}, {} commands, which are lost", to_string(device_), stream.commands),
              result);
}

// Gives the open batch to the queue; without one, what must be waited for alone.
void VulkanStreams::submit(StreamState& stream) {
  if (stream.open != nullptr && !stream.ended) end_batch(stream);
  if (stream.open != nullptr) stream.in_flight.emplace_back(stream.submitted + 1, stream.open);
  try {
    submit_buffer(stream, stream.open);
  } catch (...) {
    if (stream.open != nullptr) stream.in_flight.pop_back();
    throw;
  }
  stream.open = nullptr;
}

// Behind what the stream waits for, which may be all.
void VulkanStreams::submit_buffer(StreamState& stream, VkCommandBuffer commands) {
  const VulkanDeviceFunctions& vk = vulkan_.functions();
  std::vector<VkSemaphore> semaphores;
  std::vector<std::uint64_t> values;
  for (const VulkanPoint& point : stream.waits) {
    semaphores.push_back(point.timeline);
    values.push_back(point.value);
  }
  const std::vector<VkPipelineStageFlags> stages(semaphores.size(),
                                                 VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
  const std::uint64_t reached = stream.submitted + 1;
  VkTimelineSemaphoreSubmitInfo timeline = {};
  timeline.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
  timeline.waitSemaphoreValueCount = static_cast<std::uint32_t>(values.size());
  timeline.pWaitSemaphoreValues = values.data();
  timeline.signalSemaphoreValueCount = 1;
  timeline.pSignalSemaphoreValues = &reached;
  VkSubmitInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.pNext = &timeline;
  info.waitSemaphoreCount = static_cast<std::uint32_t>(semaphores.size());
  info.pWaitSemaphores = semaphores.data();
  info.pWaitDstStageMask = stages.data();
  info.commandBufferCount = commands != nullptr ? 1 : 0;
  info.pCommandBuffers = &commands;
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &stream.timeline;
  call_vulkan(vk.QueueSubmit, to_string(device_), stream.queue, 1u, &info,
              static_cast<VkFence>(VK_NULL_HANDLE));
  ++submissions_;
  stream.submitted = reached;
  stream.waits.clear();
}

void VulkanStreams::submit_up_to(StreamState& stream, std::uint64_t value) {
  if (value > stream.submitted) submit(stream);
}

bool VulkanStreams::has_reached(StreamState& stream, std::uint64_t value) {
  if (value <= stream.done) return true;
  call_vulkan(vulkan_.functions().GetSemaphoreCounterValue, to_string(device_), vulkan_.handle(),
              stream.timeline, &stream.done);
  return value <= stream.done;
}

// --- Captures.

void VulkanStreams::begin_capture(Stream stream, bool rehearsed) {
  StreamState& state = find_queued("begin_capture", stream);
  submit_up_to(state, state.end());
  state.is_captured = true;
  state.is_rehearsed = rehearsed;
}

// The next command begins another batch.
void VulkanStreams::close_captured(StreamState& stream) {
  if (stream.open == nullptr) return;
  reserve_more(stream.captured);
  end_batch(stream);
  stream.captured.push_back(std::exchange(stream.open, nullptr));
}

std::vector<VkCommandBuffer> VulkanStreams::end_capture(Stream stream) {
  StreamState& state = find("end_capture", stream);
  state.is_captured = state.is_rehearsed = false;
  try {
    close_captured(state);
  } catch (...) {
    forget(stream, std::exchange(state.captured, {}));
    throw;
  }
  return std::exchange(state.captured, {});
}

void VulkanStreams::submit_again(Stream stream, std::span<const VkCommandBuffer> batches) {
  StreamState& state = find_queued("run of a capture", stream);
  submit_up_to(state, state.end());
  for (const VkCommandBuffer batch : batches) submit_buffer(state, batch);
}

// They are used again once the stream is done with what it has; those of a destroyed stream go with
// its pool.
void VulkanStreams::forget(Stream stream, std::span<const VkCommandBuffer> batches) {
  StreamState& state = streams_[stream.id];
  if (!state.exists) return;
  for (const VkCommandBuffer batch : batches) state.in_flight.emplace_back(state.submitted, batch);
}

bool VulkanStreams::is_idle(Stream stream) {
  StreamState& state = find_queued("copy", stream);
  return state.end() <= state.submitted && has_reached(state, state.submitted);
}

VulkanPoint VulkanStreams::submitted_end(const char* call, Stream stream) {
  StreamState& state = find_queued(call, stream);
  submit_up_to(state, state.end());
  return {state.timeline, state.submitted};
}

std::vector<VulkanPoint> VulkanStreams::submitted_ends() {
  std::vector<VulkanPoint> ends;
  for (StreamState& stream : streams_) {
    if (stream.timeline == VK_NULL_HANDLE) continue;
    submit_up_to(stream, stream.end());
    if (stream.submitted > stream.done) ends.push_back({stream.timeline, stream.submitted});
  }
  return ends;
}

void VulkanStreams::wait(const VulkanDevice& vulkan, const std::vector<VulkanPoint>& points) {
  if (points.empty()) return;
  std::vector<VkSemaphore> semaphores;
  std::vector<std::uint64_t> values;
  for (const VulkanPoint& point : points) {
    semaphores.push_back(point.timeline);
    values.push_back(point.value);
  }
  VkSemaphoreWaitInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
  info.semaphoreCount = static_cast<std::uint32_t>(points.size());
  info.pSemaphores = semaphores.data();
  info.pValues = values.data();
  call_vulkan(vulkan.functions().WaitSemaphores, "", vulkan.handle(), &info, UINT64_MAX);
}

// --- Events.

Event VulkanStreams::record(Stream stream) {
  StreamState& state = find_queued("record", stream);
  if (free_events_.empty()) {
    reserve_more(free_events_);
    events_.emplace_back();
    free_events_.push_back(static_cast<std::uint32_t>(events_.size() - 1));
  }
  const std::uint32_t slot = free_events_.back();
  free_events_.pop_back();
  EventState& event = events_[slot];
  event.stream = stream.id;
  event.value = state.promised = state.end();
  event.exists = true;
  ++event.generation;
  return Event{(std::uint64_t{event.generation} << 32) | slot};
}

VulkanStreams::EventState& VulkanStreams::find(const char* call, Event event) {
  const std::size_t slot = event.id & 0xffffffff;
  if (slot < events_.size() && events_[slot].exists &&
      events_[slot].generation == event.id >> 32) [[likely]]
    return events_[slot];
  raise<DeviceError>("{}(event {:#x}): {} has no such event (any more)", call, event.id,
                     to_string(device_));
}

bool VulkanStreams::query(Event event) {
  const EventState& state = find("query", event);
  StreamState& stream = streams_[state.stream];
  submit_up_to(stream, state.value);
  return has_reached(stream, state.value);
}

VulkanPoint VulkanStreams::point_of(const char* call, Event event) {
  const EventState& state = find(call, event);
  StreamState& stream = streams_[state.stream];
  submit_up_to(stream, state.value);
  return state.value <= stream.done ? VulkanPoint{} : VulkanPoint{stream.timeline, state.value};
}

void VulkanStreams::stream_wait(Stream stream, Event event) {
  StreamState& later = find_queued("stream_wait", stream);
  const VulkanPoint point = point_of("stream_wait", event);
  if (point.timeline == VK_NULL_HANDLE || point.timeline == later.timeline) return;
  if (later.open != nullptr) submit(later);  // what it has does not wait
  later.waits.push_back(point);
}

void VulkanStreams::destroy(Event event) {
  find("destroy_event", event).exists = false;
  free_events_.push_back(static_cast<std::uint32_t>(event.id & 0xffffffff));
}

}  // namespace tenon
