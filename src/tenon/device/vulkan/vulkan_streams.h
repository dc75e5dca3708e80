// Streams and events over the queues of a Vulkan device. For the sources of device/vulkan/ alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "tenon/device/vulkan/vulkan_device.h"

namespace tenon {

// A point of a stream's timeline: everything before it is done once the semaphore has the value.
struct VulkanPoint {
  VkSemaphore timeline = VK_NULL_HANDLE;
  std::uint64_t value = 0;
};

// Commands are recorded into a batch, a command buffer for each stream, and submitted together:
// when a caller asks whether they are done or waits for them, and when there are kMostCommands or
// kMostGroups.
// Each batch raises the timeline semaphore of its stream by one.
//
//   record:     copy, kernel, kernel | fill, copy |      a batch each
//   timeline:                        7            8      an event is a stream and a value
//
// While a stream is captured, its commands go into batches that are not submitted. end_capture
// gives them to the caller, and submit_again queues them as often as wanted.
//
// Within a stream each command waits for the one before. Streams share queues, so a batch is
// submitted only when all that it waits for has been submitted: then no queue waits for itself.
//
// Errors: VulkanError. A batch that the queue does not take is offered again by the next call; one
// that cannot be ended is lost, as the error says, and its events are over with it.
// Not thread-safe: the backend's lock. A wait needs no lock (VulkanPoint).
class VulkanStreams {
 public:
  // Bounds of one submission: drivers reset a device that is busy with one for seconds.
  static constexpr unsigned kMostCommands = 128;
  static constexpr std::uint64_t kMostGroups = 1 << 16;  // of kernels

  VulkanStreams(VulkanDevice& vulkan, Device device);
  // The device is idle, or lost.
  ~VulkanStreams();
  VulkanStreams(const VulkanStreams&) = delete;
  VulkanStreams& operator=(const VulkanStreams&) = delete;

  // Refused with DeviceError: streams that do not exist (any more), destroying stream 0.
  Stream create();
  void destroy(Stream stream);
  void require(const char* call, Stream stream) const { find(call, stream); }

  // A command buffer to record one command into, ordered behind what the stream has. Requires:
  // added() afterwards.
  VkCommandBuffer begin_command(const char* call, Stream stream);
  // `groups`: of a kernel.
  void end_command(Stream stream, std::uint64_t groups = 0);
  // Whether all work of the stream is done, as far as is known without asking the driver much.
  bool is_idle(Stream stream);

  // From now on commands of the stream are captured. What waits for its work or records events is
  // refused with DeviceError until end_capture. Rehearsed: the caller gives no commands.
  void begin_capture(Stream stream, bool rehearsed);
  bool is_rehearsed(Stream stream) const { return streams_[stream.id].is_rehearsed; }
  bool any_rehearsed() const {
    return std::any_of(streams_.begin(), streams_.end(), [](auto& s) { return s.is_rehearsed; });
  }
  // The captured batches. Throws VulkanError; the capture is over then too.
  std::vector<VkCommandBuffer> end_capture(Stream stream);
  void submit_again(Stream stream, std::span<const VkCommandBuffer> batches);
  // Nothing submits them any more.
  void forget(Stream stream, std::span<const VkCommandBuffer> batches);

  // The end of all work that the stream has now; submitted.
  VulkanPoint submitted_end(const char* call, Stream stream);
  // The same of all streams.
  std::vector<VulkanPoint> submitted_ends();

  Event record(Stream stream);
  bool query(Event event);
  // Submitted, for a wait.
  VulkanPoint point_of(const char* call, Event event);
  void stream_wait(Stream stream, Event event);
  void destroy(Event event);

  // The host waits, without the lock. Throws VulkanError.
  static void wait(const VulkanDevice& vulkan, const std::vector<VulkanPoint>& points);

  // Of the work so far.
  std::uint64_t submissions() const { return submissions_; }

 private:
  struct StreamState {
    VkQueue queue = nullptr;
    VkSemaphore timeline = VK_NULL_HANDLE;
    VkCommandPool pool = VK_NULL_HANDLE;
    std::uint64_t submitted = 0;          // the value that the last submitted batch gives
    std::uint64_t done = 0;               // known to be reached
    std::uint64_t promised = 0;           // the highest value that an event stands for
    VkCommandBuffer open = nullptr;       // the batch that is recorded
    unsigned commands = 0;                // in it
    std::uint64_t groups = 0;             // of its kernels
    bool ended = false;                   // it takes no more: its submission was refused
    std::vector<VulkanPoint> waits;       // of the next batch
    std::deque<std::pair<std::uint64_t, VkCommandBuffer>> in_flight;
    std::vector<VkCommandBuffer> spare;
    bool exists = true;
    bool is_captured = false;
    bool is_rehearsed = false;
    std::vector<VkCommandBuffer> captured;  // batches that are complete

    // What all work until now, and every event, ends with.
    std::uint64_t end() const {
      const bool has_work = (open != nullptr && !is_captured) || !waits.empty();
      return has_work ? submitted + 1 : std::max(submitted, promised);
    }
  };
  // A slot is used again after destroy; the generation tells its events apart.
  struct EventState {
    std::uint32_t stream = 0;
    std::uint64_t value = 0;
    std::uint32_t generation = 0;
    bool exists = false;
  };

  StreamState make_stream();
  StreamState& find(const char* call, Stream stream) const;
  StreamState& find_queued(const char* call, Stream stream) const;  // and not captured
  EventState& find(const char* call, Event event);
  void begin_batch(StreamState& stream);
  void end_batch(StreamState& stream);
  void submit(StreamState& stream);
  void close_captured(StreamState& stream);
  void submit_buffer(StreamState& stream, VkCommandBuffer commands);
  void submit_up_to(StreamState& stream, std::uint64_t value);
  bool has_reached(StreamState& stream, std::uint64_t value);
  void recycle(StreamState& stream);

  VulkanDevice& vulkan_;
  const Device device_;
  mutable std::deque<StreamState> streams_;
  std::vector<EventState> events_;
  std::vector<std::uint32_t> free_events_;
  std::uint64_t submissions_ = 0;
};

}  // namespace tenon
