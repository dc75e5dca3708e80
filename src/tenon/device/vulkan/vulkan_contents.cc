#include "tenon/device/vulkan/vulkan_contents.h"

#include <algorithm>
#include <cstring>

#include "tenon/base/align.h"

namespace tenon {
namespace {

constexpr std::uint64_t kWord = 4;  // vkCmdFillBuffer fills words

VulkanBuffer host_buffer(VulkanDevice& vulkan, std::uint64_t size_bytes) {
  const auto made = vulkan.create_buffer(size_bytes, *vulkan.type_of(MemoryKind::kPinned));
  if (!made) throw DeviceError("Vulkan has no host memory for copies: close other programs");
  return *made;
}

}  // namespace

VulkanContents::VulkanContents(VulkanDevice& vulkan, VulkanStreams& streams, bool stage_always)
    : vulkan_(vulkan),
      streams_(streams),
      stage_always_(stage_always),
      bytes_(host_buffer(vulkan, 256 * kWord)) {
  for (std::size_t i = 0; i < 256 * kWord; ++i)
    bytes_.mapped[i] = static_cast<std::byte>(i / kWord);
}

VulkanContents::~VulkanContents() {
  vulkan_.destroy_buffer(bytes_);
  vulkan_.destroy_buffer(ring_);
}

void VulkanContents::copy(VulkanPlace dest, VulkanPlace src, std::uint64_t size_bytes,
                          Stream stream) {
  const VkBufferCopy region = {src.offset, dest.offset, size_bytes};
  const VkCommandBuffer commands = streams_.begin_command("copy", stream);
  vulkan_.functions().CmdCopyBuffer(commands, src.buffer->buffer, dest.buffer->buffer, 1u, &region);
  streams_.end_command(stream);
}

// The next piece of the ring, after the copy that used it last.
VulkanPlace VulkanContents::next_slot() {
  if (ring_.buffer == VK_NULL_HANDLE) ring_ = host_buffer(vulkan_, kRingBytes);
  const std::size_t next = (slot_ + 1) % kSlots;
  if (used_until_[next].timeline != VK_NULL_HANDLE)
    VulkanStreams::wait(vulkan_, {used_until_[next]});
  slot_ = next;
  used_until_[next] = {};
  return {&ring_, next * kSlotBytes};
}

void VulkanContents::upload(VulkanPlace dest, const std::byte* src, std::uint64_t size_bytes,
                            Stream stream) {
  if (reaches(dest) && streams_.is_idle(stream)) {
    std::memcpy(dest.mapped(), src, size_bytes);
    return;
  }
  for (std::uint64_t done = 0; done < size_bytes;) {
    const std::uint64_t piece = std::min(kSlotBytes, size_bytes - done);
    const VulkanPlace slot = next_slot();
    std::memcpy(slot.mapped(), src + done, piece);
    copy({dest.buffer, dest.offset + done}, slot, piece, stream);
    used_until_[slot_] = streams_.submitted_end("copy", stream);
    done += piece;
  }
}

void VulkanContents::download(std::byte* dest, VulkanPlace src, std::uint64_t size_bytes,
                              Stream stream, std::unique_lock<std::mutex>& lock) {
  if (reaches(src)) {
    const std::byte* const from = src.mapped();
    const VulkanPoint end = streams_.submitted_end("copy", stream);
    lock.unlock();
    VulkanStreams::wait(vulkan_, {end});
    std::memcpy(dest, from, size_bytes);
    return;
  }
  for (std::uint64_t done = 0; done < size_bytes;) {
    const std::uint64_t piece = std::min(kSlotBytes, size_bytes - done);
    const VulkanPlace slot = next_slot();
    copy(slot, {src.buffer, src.offset + done}, piece, stream);
    VulkanStreams::wait(vulkan_, {streams_.submitted_end("copy", stream)});
    std::memcpy(dest + done, slot.mapped(), piece);
    done += piece;
  }
}

void VulkanContents::fill(VulkanPlace dest, std::uint8_t value, std::uint64_t size_bytes,
                          Stream stream) {
  const VulkanPlace pattern = {&bytes_, value * kWord};
  const std::uint64_t begin = std::min(align_up(dest.offset, kWord), dest.offset + size_bytes);
  const std::uint64_t end = std::max(begin, (dest.offset + size_bytes) / kWord * kWord);
  if (begin > dest.offset) copy(dest, pattern, begin - dest.offset, stream);
  if (end > begin) {
    const VkCommandBuffer commands = streams_.begin_command("fill", stream);
    vulkan_.functions().CmdFillBuffer(commands, dest.buffer->buffer, begin, end - begin,
                                      value * std::uint32_t{0x01010101});
    streams_.end_command(stream);
  }
  const std::uint64_t rest = dest.offset + size_bytes - end;
  if (rest > 0) copy({dest.buffer, end}, pattern, rest, stream);
}

}  // namespace tenon
