// Copies and fills in stream order. For the sources of device/vulkan/ alone.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "tenon/device/vulkan/vulkan_device.h"
#include "tenon/device/vulkan/vulkan_streams.h"

namespace tenon {

// A place in a buffer.
struct VulkanPlace {
  const VulkanBuffer* buffer = nullptr;  // null: host memory
  std::uint64_t offset = 0;

  std::byte* mapped() const { return buffer->mapped + offset; }
};

// Host memory goes through the mapping where there is one and the stream is idle. Otherwise it goes
// through a ring of host-visible buffers, kRingBytes in kSlots pieces: a piece is used again once
// the copy that read it is done.
//
// Requires, of each function: the backend's lock, and stream and bytes that exist.
class VulkanContents {
 public:
  static constexpr std::uint64_t kRingBytes = 16 << 20;
  static constexpr std::size_t kSlots = 4;
  static constexpr std::uint64_t kSlotBytes = kRingBytes / kSlots;

  VulkanContents(VulkanDevice& vulkan, VulkanStreams& streams, bool stage_always);
  ~VulkanContents();
  VulkanContents(const VulkanContents&) = delete;
  VulkanContents& operator=(const VulkanContents&) = delete;

  // Between segments, which do not overlap.
  void copy(VulkanPlace dest, VulkanPlace src, std::uint64_t size_bytes, Stream stream);
  // From host memory, which may change afterwards.
  void upload(VulkanPlace dest, const std::byte* src, std::uint64_t size_bytes, Stream stream);
  // To host memory, which has the bytes afterwards. Gives the lock away while it waits.
  void download(std::byte* dest, VulkanPlace src, std::uint64_t size_bytes, Stream stream,
                std::unique_lock<std::mutex>& lock);
  void fill(VulkanPlace dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream);

 private:
  VulkanPlace next_slot();
  bool reaches(const VulkanPlace& place) const {
    return !stage_always_ && place.buffer->mapped != nullptr;
  }

  VulkanDevice& vulkan_;
  VulkanStreams& streams_;
  const bool stage_always_;
  VulkanBuffer bytes_;  // each value of a byte, four times: what fills ends that are not aligned
  VulkanBuffer ring_;
  std::array<VulkanPoint, kSlots> used_until_;
  std::size_t slot_ = 0;
};

}  // namespace tenon
