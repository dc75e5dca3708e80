// One device of Vulkan: any GPU, or a driver that computes on the host. O(log segments) beside it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tenon/device/backend.h"
#include "tenon/device/vulkan/vulkan_driver.h"

namespace tenon {

// A program for the device, as SPIR-V with the entry "main", and the values of its specialisation
// constants 0 to 3. Two are the same kernel if their code has the same address and the constants
// are equal. The code must stay there as long as the backend lives.
struct VulkanKernel {
  std::span<const std::uint32_t> code;
  std::array<std::uint32_t, 4> constants = {};
  // The kernel reads two buffers of texels: binding 0 of its descriptor sets 0 and 1. Each covers
  // the whole segment of an address that is given to launch.
  bool reads_texels = false;
};

// What kernels may use beyond f32 and i32, where the device has it.
struct VulkanAbilities {
  bool integers = false;  // of 8 and 16 bits in memory, of 64 bits also in arithmetic
  bool f64 = false;
  std::uint32_t lanes = 1;  // invocations that can read each other's registers
  bool on_host = false;     // the device is the host's processor
};

// How a device is used.
struct VulkanOptions {
  // Also where host and device share one memory, contents are staged and segments have no host
  // pointer, as on a discrete card.
  bool stage_always = false;
};

// Device vulkan:i.
//
// A segment is a VkDeviceMemory with a VkBuffer over it. Where host and device share one memory its
// `base` is the address at which the host reaches it, and `host` is the same. Elsewhere `base` is
// an address that the process reserves and nothing can read: so no segment's address is ever that
// of host memory. Kernels are given device_address(base). Kinds: device memory, pinned (the
// host's, which the device reaches), shared (where there is one memory). One segment has at most
// the bytes, and the device at most the segments, that the driver allows: beyond them memory is
// short.
//
// Streams are timeline semaphores over the device's queues. Work is submitted in batches (class
// VulkanStreams). copy to host memory returns when the bytes are there; copy from host memory when
// they may change. There is no virtual memory.
//
// Errors: VulkanError with the call. When is_device_lost(), later requests fail too, and what is
// given back is forgotten without complaint.
// Thread-safe: one mutex, not held while the host waits for events and streams.
class VulkanBackend final : public Backend {
 public:
  // Throws DeviceError where there is no such device, or it lacks what Tenon needs.
  VulkanBackend(std::shared_ptr<const VulkanDriver> driver, int index,
                const VulkanOptions& options = {});
  ~VulkanBackend() override;

  // --- What Vulkan has beyond the contract.
  // Where kernels find the byte. Throws DeviceError in no segment, and in that of a past rehearsal.
  std::uint64_t device_address(const void* address) const;
  // Which texel (of four floats) of its segment begins there; nothing where none does, or where
  // the segment has more than the device takes.
  std::optional<std::uint32_t> texel_at(const void* address) const;
  // Queues the kernel on the stream: groups of invocations in three dimensions, with up to 128
  // bytes of push constants (addresses by device_address, sizes). The first use makes a pipeline.
  // `texels`: addresses in the segments that a kernel with reads_texels reads as such. Throws
  // InvalidArgument for more bytes or groups than the device takes, and for texels that texel_at
  // does not find; VulkanError. Requires: the bytes that it reaches stay until the stream is done
  // with them.
  void launch(const VulkanKernel& kernel, std::span<const std::byte> arguments,
              std::array<std::uint32_t, 3> groups, Stream stream,
              std::array<const void*, 2> texels = {});
  // Captures what follows on the stream instead of running it: kernels, fills, and copies within
  // the device. Until end_capture, DeviceError refuses what waits for the stream, records events or
  // copies to or from the host there. end_capture returns the capture's number; run_capture queues
  // its work on its stream again, by one submission for each batch (VulkanStreams). drop_capture
  // lets it go when the device is done. Requires: the bytes that it reaches stay until then.
  // A rehearsed capture checks the calls and keeps nothing of them.
  enum class Captures : bool { kWork, kNothing };
  void begin_capture(Stream stream, Captures captures = Captures::kWork);
  std::uint64_t end_capture(Stream stream);
  void run_capture(std::uint64_t capture);
  void drop_capture(std::uint64_t capture);
  // Addresses without memory, for calls of a rehearsed capture: other calls refuse them. Nothing
  // where the process has none left.
  std::optional<Segment> reserve_segment(std::uint64_t size_bytes);
  void release_reserved(const Segment& segment);
  // What kernels may use.
  const VulkanAbilities& abilities() const;
  // Pipelines made so far.
  std::uint64_t pipelines() const;
  // Batches given to queues so far.
  std::uint64_t submissions() const;

  // --- Backend.
  Device device() const override { return device_; }
  std::string description() const override { return description_; }
  const BackendLimits& limits() const override { return limits_; }
  BackendMemory memory() const override;
  std::uint64_t total_bytes() const override;

  std::optional<Segment> allocate_segment(std::uint64_t size_bytes,
                                          MemoryKind kind = MemoryKind::kDevice) override;
  void free_segment(const Segment& segment) override;

  // Refused: there is no virtual memory.
  std::optional<AddressRange> reserve_address(std::uint64_t size_bytes) override;
  void release_address(AddressRange range) override;
  std::optional<PageHandle> create_pages(std::uint64_t size_bytes) override;
  void release_pages(PageHandle pages) override;
  bool map(std::uintptr_t address, PageHandle pages) override;
  bool set_access(std::uintptr_t address, std::uint64_t size_bytes) override;
  void unmap(std::uintptr_t address, PageHandle pages) override;

  void copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) override;
  void fill(void* dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream) override;

  Stream create_stream() override;
  void destroy_stream(Stream stream) override;
  Event record(Stream stream) override;
  bool query(Event event) override;
  void wait(Event event) override;
  void stream_wait(Stream stream, Event event) override;
  void destroy_event(Event event) override;
  void synchronize(Stream stream) override;
  void synchronize() override;

  // Times are measured.
  DriverLedger ledger() const override;
  void set_purpose(DriverPurpose purpose) override;

 private:
  struct State;
  class TimedCall;
  [[noreturn]] void refuse_virtual_memory(const char* call) const;

  const Device device_;
  std::unique_ptr<State> state_;
  BackendLimits limits_;
  std::string description_;
};

// The process's backend for vulkan:index, over VulkanDriver::standard(), with stage_always where
// TENON_VULKAN_STAGE is 1; made at the first call and never destroyed, so that memory may be freed
// while the program ends. Thread-safe. Throws what VulkanDriver::standard and the constructor
// throw.
VulkanBackend& vulkan_backend(int index = 0);

}  // namespace tenon
