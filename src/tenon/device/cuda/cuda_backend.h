// One NVIDIA GPU. A call is O(log n) in segments and mappings beside the driver.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tenon/device/address_table.h"
#include "tenon/device/backend.h"
#include "tenon/device/cuda/cuda_streams.h"

namespace tenon {

// A segment's name for another process: opaque bytes, to be sent as they are, and its size.
struct CudaIpcSegment {
  cu::IpcMemoryHandle handle;
  std::uint64_t size_bytes = 0;
};

// Device cuda:i by the driver API, in the device's primary context, which PyTorch and the CUDA
// runtime use too. The calling thread's current context is left as it was.
//
// Segments: device memory, pinned host memory, or managed memory. Virtual memory: pages are device
// memory, mapped whole, readable and writable by this device and by peers that allow_peer() let in.
// Arguments are first checked against tables of addresses and mappings, so misuse is an error and
// not undefined behaviour. Addresses given to copy and fill may be any that the driver knows. Those
// of this backend's own segments and ranges are checked to their ends. The caller closes the file
// descriptor that export_pages returns.
//
// Errors: CudaError with call, arguments and the driver's text. When is_device_lost(), every later
// request fails too, and what is given back is forgotten without complaint.
// Thread-safe: one mutex, not held while the host waits for events and streams.
class CudaBackend final : public Backend {
 public:
  // Throws DeviceError when there is no such device.
  CudaBackend(std::shared_ptr<const CudaDriver> driver, int index);
  // Gives everything back that the driver still takes.
  ~CudaBackend() override;

  // The driver's functions, and the primary context of the device.
  const CudaDriver& driver() const { return *driver_; }
  cu::Context context() const { return context_; }

  // --- What CUDA has beyond the contract.
  // No more device memory than this for segments and pages of all allocators; memory() shows
  // such a device. 0: what the device has. What is held beyond a new limit stays.
  void set_limit(std::uint64_t bytes);
  std::uint64_t held_bytes() const;
  std::uint64_t held_peak_bytes() const;

  // The number of a stream that was made elsewhere; null is the default stream. Its owner may not
  // destroy it before destroy_stream here. Throws InvalidArgument for CU_STREAM_PER_THREAD.
  Stream adopt_stream(cu::Stream handle);
  // The same for a stream that its owner may destroy at any time: Note [Borrowed streams].
  // Requires: a StreamInHand for it.
  Stream borrow_stream(cu::Stream handle);
  cu::Stream stream_handle(Stream stream) const;
  // The device of a stream made elsewhere. Requires: it lives, and is not the default stream.
  int device_of_stream(cu::Stream handle) const;
  // From now on captures may be under way on streams that are not known here (+1), or one of them
  // is over (-1). Meanwhile nothing waits for the whole device.
  void expect_captures(int change);
  // Whether a graph is captured from the stream now.
  bool is_capturing(Stream stream) const;

  // Whether kernels on `peer` can read and write this device's memory. Asks the driver.
  bool can_be_reached_by(const CudaBackend& peer) const;
  // From now on the peer device may read and write all memory of this one, whether it is mapped
  // already or later. Throws DeviceError where the hardware has no path.
  void allow_peer(const CudaBackend& peer);

  // Whole device segments for other processes. An imported one is given back by free_segment; the
  // exporter must keep the original until then. Throws DeviceError for other kinds of memory.
  CudaIpcSegment export_segment(const Segment& segment);
  Segment import_segment(const CudaIpcSegment& shared);

  // --- Backend.
  Device device() const override { return device_; }
  std::string description() const override { return description_; }
  const BackendLimits& limits() const override { return limits_; }
  BackendMemory memory() const override;

  std::optional<Segment> allocate_segment(std::uint64_t size_bytes,
                                          MemoryKind kind = MemoryKind::kDevice) override;
  void free_segment(const Segment& segment) override;

  std::optional<AddressRange> reserve_address(std::uint64_t size_bytes) override;
  void release_address(AddressRange range) override;
  std::optional<PageHandle> create_pages(std::uint64_t size_bytes) override;
  void release_pages(PageHandle pages) override;
  bool map(std::uintptr_t address, PageHandle pages) override;
  bool set_access(std::uintptr_t address, std::uint64_t size_bytes) override;
  void unmap(std::uintptr_t address, PageHandle pages) override;

  std::int64_t export_pages(PageHandle pages) override;
  PageHandle import_pages(std::int64_t token, std::uint64_t size_bytes) override;

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
  class TimedCall;
  class WaitingCall;
  // Held while it lives, also when a constructor that holds it throws.
  struct PrimaryContext {
    PrimaryContext(const CudaDriver& driver, cu::DeviceId id);
    ~PrimaryContext();
    PrimaryContext(const PrimaryContext&) = delete;
    PrimaryContext& operator=(const PrimaryContext&) = delete;

    cu::Context handle = nullptr;

   private:
    const CudaDriver& driver_;
    const cu::DeviceId id_;
  };
  enum class Origin : std::uint8_t { kDevice, kHost, kManaged, kImported };

  int attribute(int which) const;
  void require_virtual_memory(const char* call) const;
  cu::AllocationProperties page_properties() const;
  bool makes_pages_to_export();
  std::vector<cu::AccessDescription> access_descriptions() const;
  std::optional<Segment> take_from_driver(std::uint64_t rounded, MemoryKind kind, Origin* origin);
  void give_to_driver(const Segment& segment, Origin origin);
  bool maps_as(cu::Allocation pages, std::uint64_t size_bytes);
  void hold(std::uint64_t bytes) {
    held_ += bytes;
    if (held_ > held_peak_) held_peak_ = held_;
  }
  void forget(const std::optional<AddressTable::Dropped>& dropped);
  bool exceeds_limit(std::uint64_t more) const { return limit_ != 0 && held_ + more > limit_; }
  void check_contents(const char* call, const void* address, std::uint64_t size_bytes) const;
  bool is_reachable(Stream stream) const;
  bool wait_for_device_instead(Event event);

  const std::shared_ptr<const CudaDriver> driver_;
  const Device device_;
  cu::DeviceId id_ = 0;
  const PrimaryContext primary_;
  const cu::Context context_;
  const std::uint64_t page_granularity_;  // 0: no virtual memory
  BackendLimits limits_;
  bool rdma_capable_ = false;  // pages can be registered with a network card
  std::string description_;

  mutable std::mutex mutex_;  // all below
  DriverPurpose purpose_ = DriverPurpose::kGrowth;
  DriverLedger ledger_;
  AddressTable table_;
  std::unordered_map<std::uint64_t, Origin> origins_;  // of segments, by handle
  CudaStreams streams_;
  std::uint64_t limit_ = 0;  // 0: none
  std::uint64_t held_ = 0;   // device memory in segments and pages
  std::uint64_t held_peak_ = 0;
  std::vector<cu::DeviceId> peers_;  // that may reach this one's memory
};

// While it lives, the calling thread's caller names the stream, so the stream lives too.
class StreamInHand {
 public:
  explicit StreamInHand(cu::Stream handle) : before_(CudaStreams::in_hand()) {
    CudaStreams::in_hand() = handle;
  }
  ~StreamInHand() { CudaStreams::in_hand() = before_; }
  StreamInHand(const StreamInHand&) = delete;
  StreamInHand& operator=(const StreamInHand&) = delete;

 private:
  const cu::Stream before_;
};

// The process's backend for cuda:index, over CudaDriver::standard(); made at the first call and
// never destroyed, so that memory may be freed while the program ends. Thread-safe. Throws what
// CudaDriver::standard and the constructor throw.
CudaBackend& cuda_backend(int index = 0);

}  // namespace tenon
