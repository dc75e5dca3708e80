#include "tenon/device/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/device/cuda/cuda_calls.h"

namespace tenon {
namespace {

// cuMemAlloc aligns to 256 bytes at least, and rounds sizes up to 512 bytes at least.
constexpr std::uint64_t kSegmentAlignment = 256;
constexpr std::uint64_t kSegmentRounding = 512;

// Of pages; 0 where the device has no virtual memory.
std::uint64_t granularity(const CudaDriver& driver, cu::Context context, cu::DeviceId id) {
  const CudaScope scope(driver, context);
  int has_virtual_memory = 0;
  driver.call(driver.device_get_attribute, &has_virtual_memory, cu::kAttributeVirtualMemory, id);
  if (has_virtual_memory == 0) return 0;
  cu::AllocationProperties properties;
  properties.type = cu::kAllocationPinned;
  properties.location = {cu::kLocationDevice, id};
  std::size_t bytes = 0;
  driver.call(driver.mem_get_granularity, &bytes, &properties, cu::kGranularityMinimum);
  return bytes;
}

cu::DeviceId find_device(const CudaDriver& driver, int index) {
  driver.require_same_process();
  if (index < 0 || index >= driver.device_count())
    raise<DeviceError>("there is no cuda:{}: the driver finds {} device{}", index,
                       driver.device_count(), driver.device_count() == 1 ? "" : "s");
  cu::DeviceId id = 0;
  driver.call(driver.device_get, &id, index);
  return id;
}

}  // namespace

CudaBackend::PrimaryContext::PrimaryContext(const CudaDriver& driver, cu::DeviceId id)
    : driver_(driver), id_(id) {
  driver_.call(driver_.primary_ctx_retain, &handle, id_);
}

CudaBackend::PrimaryContext::~PrimaryContext() {
  if (driver_.is_same_process()) driver_.primary_ctx_release(id_);
}

CudaBackend::CudaBackend(std::shared_ptr<const CudaDriver> driver, int index)
    : driver_(std::move(driver)),
      device_{DeviceType::kCuda, static_cast<std::int16_t>(index)},
      id_(find_device(*driver_, index)),
      primary_(*driver_, id_),
      context_(primary_.handle),
      page_granularity_(granularity(*driver_, context_, id_)),
      table_(page_granularity_, true),
      streams_(*driver_, device_) {
  limits_.alignment = kSegmentAlignment;
  limits_.page_granularity = page_granularity_;
  limits_.has_virtual_memory = page_granularity_ != 0;
  limits_.can_map_twice = limits_.has_virtual_memory;
  // Network cards register memory that is mapped here only if it was made for that.
  rdma_capable_ = limits_.has_virtual_memory && attribute(cu::kAttributeRdmaWithVirtualMemory) != 0;
  limits_.can_export = limits_.has_virtual_memory &&
                       attribute(cu::kAttributeExportsFileDescriptors) != 0;
  if (limits_.can_export) limits_.can_export = makes_pages_to_export();
  limits_.unified = false;  // managed memory is a kind of segment
  std::size_t total = 0;
  driver_->call(driver_->device_total_mem, &total, id_);
  limits_.recommended_working_set_bytes = total;
  char name[128] = {};
  driver_->call(driver_->device_get_name, name, static_cast<int>(sizeof(name) - 1), id_);
  description_ = fmt::format("{}, {}, compute {}.{}, driver for CUDA {}, {}", name,
                             format_byte_size(total), attribute(cu::kAttributeComputeMajor),
                             attribute(cu::kAttributeComputeMinor), driver_->version_text(),
                             limits_.has_virtual_memory
                                 ? "pages of " + format_byte_size(limits_.page_granularity)
                                 : "no virtual memory");
}

CudaBackend::~CudaBackend() {
  if (!driver_->is_same_process()) return;  // the parent's, all of it
  ignore_refusal([&] {
    const CudaScope scope(*driver_, context_);
    bool capturing = false;
    ignore_refusal([&] { capturing = streams_.any_capturing(); });
    if (!capturing) driver_->ctx_synchronize();
    table_.for_each_mapping([&](std::uintptr_t address, PageHandle pages) {
      driver_->mem_unmap(address, pages.size_bytes);
    });
    table_.for_each_unreleased([&](std::uint64_t backing) { driver_->mem_release(backing); });
    table_.for_each_range([&](AddressRange range) {
      driver_->mem_address_free(range.base, range.size_bytes);
    });
    table_.for_each_segment([&](const Segment& segment) {
      ignore_refusal([&] { give_to_driver(segment, origins_.at(segment.handle)); });
    });
    streams_.release_all();
  });
}

int CudaBackend::attribute(int which) const {
  int value = 0;
  driver_->call(driver_->device_get_attribute, &value, which, id_);
  return value;
}

BackendMemory CudaBackend::memory() const {
  const CudaScope scope(*driver_, context_);
  std::size_t free = 0;
  std::size_t total = 0;
  driver_->call(driver_->mem_get_info, &free, &total);
  const std::lock_guard guard(mutex_);
  if (limit_ == 0 || limit_ >= total) return {total, free};
  return {limit_, std::min<std::uint64_t>(free, limit_ - std::min(limit_, held_))};
}

void CudaBackend::set_limit(std::uint64_t bytes) {
  const std::lock_guard guard(mutex_);
  limit_ = bytes;
}

std::uint64_t CudaBackend::held_peak_bytes() const {
  const std::lock_guard guard(mutex_);
  return held_peak_;
}

std::uint64_t CudaBackend::held_bytes() const {
  const std::lock_guard guard(mutex_);
  return held_;
}

// --- Segments.

std::optional<Segment> CudaBackend::allocate_segment(std::uint64_t size_bytes, MemoryKind kind) {
  const TimedCall call(*this, DriverCall::kAllocate);
  table_.require_segment_size(size_bytes);
  if (size_bytes > kMaxRequestBytes) return std::nullopt;
  Origin origin = Origin::kDevice;
  const std::uint64_t rounded = align_up(size_bytes, kSegmentRounding);
  if (kind == MemoryKind::kDevice && exceeds_limit(rounded)) return std::nullopt;
  auto segment = take_from_driver(rounded, kind, &origin);
  if (!segment) return std::nullopt;
  if (origin == Origin::kDevice) hold(rounded);
  segment->handle =
      table_.add_segment(reinterpret_cast<std::uintptr_t>(segment->base), segment->size_bytes);
  origins_.emplace(segment->handle, origin);
  return segment;
}

std::optional<Segment> CudaBackend::take_from_driver(std::uint64_t rounded, MemoryKind kind,
                                                     Origin* origin) {
  cu::Address address = 0;
  void* host = nullptr;
  switch (kind) {
    case MemoryKind::kDevice:
      if (!driver_->call_for_memory(driver_->mem_alloc, &address, std::size_t{rounded}))
        return std::nullopt;
      break;
    case MemoryKind::kPinned:
      *origin = Origin::kHost;
      // Unified addressing: the device's address is the host's.
      if (!driver_->call_for_memory(driver_->mem_host_alloc, &host, std::size_t{rounded},
                                    cu::kHostAllocPortable))
        return std::nullopt;
      address = reinterpret_cast<std::uintptr_t>(host);
      break;
    case MemoryKind::kManaged:
      *origin = Origin::kManaged;
      if (!driver_->call_for_memory(driver_->mem_alloc_managed, &address, std::size_t{rounded},
                                    cu::kAttachGlobal))
        return std::nullopt;
      host = reinterpret_cast<void*>(address);
      break;
    case MemoryKind::kShared:
      throw DeviceError(fmt::format("allocate_segment({}): {} and the host have no shared memory; "
                                    "ask for managed or pinned memory",
                                    rounded, to_string(device_)));
  }
  return Segment{reinterpret_cast<void*>(address), host, rounded, 0, kind};
}

void CudaBackend::free_segment(const Segment& segment) {
  const TimedCall call(*this, DriverCall::kFree);
  table_.require_segment(segment);
  const Origin origin = origins_.at(segment.handle);
  give_to_driver(segment, origin);
  if (origin == Origin::kDevice) held_ -= segment.size_bytes;
  origins_.erase(segment.handle);
  table_.remove_segment(segment);
}

void CudaBackend::give_to_driver(const Segment& segment, Origin origin) {
  const auto address = static_cast<cu::Address>(reinterpret_cast<std::uintptr_t>(segment.base));
  switch (origin) {
    case Origin::kDevice:
    case Origin::kManaged:
      return driver_->call_to_give_back(driver_->mem_free, address);
    case Origin::kHost:
      return driver_->call_to_give_back(driver_->mem_free_host, segment.base);
    case Origin::kImported:
      // Closing does not wait as freeing does; the contract says that freeing waits.
      driver_->call_to_give_back(driver_->ctx_synchronize);
      return driver_->call_to_give_back(driver_->ipc_close_mem_handle, address);
  }
}

// --- Virtual memory.

void CudaBackend::require_virtual_memory(const char* call) const {
  if (!limits_.has_virtual_memory)
    raise<DeviceError>("{}: {} has no virtual memory; use policy caching", call,
                       to_string(device_));
}

cu::AllocationProperties CudaBackend::page_properties() const {
  cu::AllocationProperties properties;
  properties.type = cu::kAllocationPinned;
  properties.location = {cu::kLocationDevice, id_};
  properties.requested_handle_types =
      limits_.can_export ? cu::kHandleFileDescriptor : cu::kHandleNone;
  properties.gpu_direct_rdma_capable = rdma_capable_ ? 1 : 0;
  return properties;
}

// Some sandboxes refuse exports although the device's attribute allows them; then pages stay in
// this process.
bool CudaBackend::makes_pages_to_export() {
  const CudaScope scope(*driver_, context_);
  const cu::AllocationProperties properties = page_properties();
  cu::Allocation made = 0;
  const cu::Result result = driver_->mem_create(
      &made, static_cast<std::size_t>(page_granularity_), &properties, 0ull);
  if (result != cu::kSuccess) return result == cu::kErrorOutOfMemory;
  const PageHandle pages = table_.add_pages(page_granularity_, made);
  if (driver_->mem_release(made) == cu::kSuccess) table_.release_pages(pages);  // else at the end
  return true;
}

std::optional<AddressRange> CudaBackend::reserve_address(std::uint64_t size_bytes) {
  require_virtual_memory("reserve_address");
  const TimedCall call(*this, DriverCall::kReserveAddress);
  table_.require_range_size(size_bytes);
  if (size_bytes > kMaxRequestBytes) return std::nullopt;
  cu::Address base = 0;
  if (!driver_->call_for_memory(driver_->mem_address_reserve, &base, std::size_t{size_bytes},
                                std::size_t{limits_.page_granularity}, cu::Address{0}, 0ull))
    return std::nullopt;
  const AddressRange range{base, size_bytes};
  table_.add_range(range);
  return range;
}

void CudaBackend::release_address(AddressRange range) {
  const TimedCall call(*this, DriverCall::kReleaseAddress);
  table_.require_empty_range(range);
  driver_->call_to_give_back(driver_->mem_address_free, cu::Address{range.base},
                             std::size_t{range.size_bytes});
  table_.remove_range(range);
}

std::optional<PageHandle> CudaBackend::create_pages(std::uint64_t size_bytes) {
  require_virtual_memory("create_pages");
  const TimedCall call(*this, DriverCall::kCreate);
  table_.require_pages_size(size_bytes);
  if (size_bytes > kMaxRequestBytes || exceeds_limit(size_bytes)) return std::nullopt;
  const cu::AllocationProperties properties = page_properties();
  cu::Allocation pages = 0;
  if (!driver_->call_for_memory(driver_->mem_create, &pages, std::size_t{size_bytes}, &properties,
                                0ull))
    return std::nullopt;
  hold(size_bytes);
  return table_.add_pages(size_bytes, pages);
}

void CudaBackend::forget(const std::optional<AddressTable::Dropped>& dropped) {
  if (dropped) held_ -= dropped->size_bytes;
}

void CudaBackend::release_pages(PageHandle pages) {
  const TimedCall call(*this, DriverCall::kRelease);
  const cu::Allocation backing = table_.backing("release_pages", pages);
  // The driver, too, keeps the memory until its last mapping is gone.
  driver_->call_to_give_back(driver_->mem_release, backing);
  forget(table_.release_pages(pages));
}

bool CudaBackend::map(std::uintptr_t address, PageHandle pages) {
  const TimedCall call(*this, DriverCall::kMap);
  table_.require_can_map(address, pages);
  if (!driver_->call_for_memory(driver_->mem_map, cu::Address{address},
                                std::size_t{pages.size_bytes}, std::size_t{0},
                                cu::Allocation{table_.backing("map", pages)}, 0ull))
    return false;
  table_.add_mapping(address, pages);
  return true;
}

std::vector<cu::AccessDescription> CudaBackend::access_descriptions() const {
  std::vector<cu::AccessDescription> access = {
      {{cu::kLocationDevice, id_}, cu::kAccessReadWrite}};
  for (const int peer : peers_)
    access.push_back({{cu::kLocationDevice, peer}, cu::kAccessReadWrite});
  return access;
}

bool CudaBackend::set_access(std::uintptr_t address, std::uint64_t size_bytes) {
  const TimedCall call(*this, DriverCall::kSetAccess);
  table_.handles_in(address, size_bytes);
  const auto access = access_descriptions();
  if (!driver_->call_for_memory(driver_->mem_set_access, cu::Address{address},
                                std::size_t{size_bytes}, access.data(), access.size()))
    return false;
  table_.set_accessible(address, size_bytes);
  return true;
}

void CudaBackend::unmap(std::uintptr_t address, PageHandle pages) {
  const TimedCall call(*this, DriverCall::kUnmap);
  table_.require_mapped(address, pages);
  driver_->call_to_give_back(driver_->mem_unmap, cu::Address{address},
                             std::size_t{pages.size_bytes});
  forget(table_.remove_mapping(address));
}

// --- Contents.

void CudaBackend::check_contents(const char* call, const void* address,
                                 std::uint64_t size_bytes) const {
  table_.require_accessible(call, address, size_bytes);
}

void CudaBackend::copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) {
  const CudaScope scope(*driver_, context_);
  cu::Stream on = nullptr;
  {
    const std::lock_guard guard(mutex_);
    on = streams_.handle("copy", stream);
    if (size_bytes == 0) return;
    check_contents("copy to", dest, size_bytes);
    check_contents("copy from", src, size_bytes);
  }
  const auto to = static_cast<cu::Address>(reinterpret_cast<std::uintptr_t>(dest));
  const auto from = static_cast<cu::Address>(reinterpret_cast<std::uintptr_t>(src));
  driver_->call(driver_->memcpy_async, to, from, std::size_t{size_bytes}, on);
}

void CudaBackend::fill(void* dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream) {
  const CudaScope scope(*driver_, context_);
  cu::Stream on = nullptr;
  {
    const std::lock_guard guard(mutex_);
    on = streams_.handle("fill", stream);
    if (size_bytes == 0) return;
    check_contents("fill", dest, size_bytes);
  }
  const auto to = static_cast<cu::Address>(reinterpret_cast<std::uintptr_t>(dest));
  driver_->call(driver_->memset_d8_async, to, static_cast<unsigned char>(value),
                std::size_t{size_bytes}, on);
}

// --- Streams and events.

Stream CudaBackend::create_stream() {
  const CudaScope scope(*driver_, context_);
  const std::lock_guard guard(mutex_);
  return streams_.create();
}

Stream CudaBackend::adopt_stream(cu::Stream handle) {
  const std::lock_guard guard(mutex_);
  return streams_.adopt(handle);
}

Stream CudaBackend::borrow_stream(cu::Stream handle) {
  const CudaScope scope(*driver_, context_);
  const std::lock_guard guard(mutex_);
  return streams_.borrow(handle);
}

int CudaBackend::device_of_stream(cu::Stream handle) const {
  cu::Context context = nullptr;
  {
    const CudaScope scope(*driver_, context_);
    driver_->call(driver_->stream_get_ctx, handle, &context);
  }
  if (context == context_) return device_.index;
  const CudaScope scope(*driver_, context);
  cu::DeviceId id = 0;
  driver_->call(driver_->ctx_get_device, &id);
  return id;
}

void CudaBackend::expect_captures(int change) {
  const std::lock_guard guard(mutex_);
  streams_.expect_captures(change);
}

cu::Stream CudaBackend::stream_handle(Stream stream) const {
  const std::lock_guard guard(mutex_);
  return streams_.handle("stream_handle", stream);
}

bool CudaBackend::is_capturing(Stream stream) const {
  const CudaScope scope(*driver_, context_);
  const std::lock_guard guard(mutex_);
  const cu::Stream handle = streams_.handle("is_capturing", stream);
  return streams_.is_reachable(stream) && streams_.is_capturing(handle);
}

void CudaBackend::destroy_stream(Stream stream) {
  const CudaScope scope(*driver_, context_);
  const std::lock_guard guard(mutex_);
  streams_.destroy(stream);
}

Event CudaBackend::record(Stream stream) {
  const TimedCall call(*this, DriverCall::kEventRecord);
  return streams_.record(stream);
}

bool CudaBackend::query(Event event) {
  const TimedCall call(*this, DriverCall::kEventQuery);
  return streams_.query(event);
}

// True: it has waited, since it may not query the event's stream. Note [Borrowed streams]
bool CudaBackend::wait_for_device_instead(Event event) {
  std::vector<Event> complete;
  {
    const std::lock_guard guard(mutex_);
    if (!streams_.only_device_tells(event)) return false;
    complete = streams_.complete_on_device();
  }
  synchronize();
  const std::lock_guard guard(mutex_);
  streams_.set_complete(complete);
  return true;
}

void CudaBackend::wait(Event event) {
  if (wait_for_device_instead(event)) return;
  const WaitingCall call(*this);
  const cu::Event recorded = [&] {
    const std::lock_guard guard(mutex_);
    return streams_.recorded("wait", event);
  }();
  if (recorded != nullptr) driver_->call(driver_->event_synchronize, recorded);
}

void CudaBackend::stream_wait(Stream stream, Event event) {
  if (wait_for_device_instead(event)) return;
  const TimedCall call(*this, DriverCall::kStreamWait);
  const cu::Stream on = streams_.handle("stream_wait", stream);
  if (!streams_.is_reachable(stream))
    raise<DeviceError>("stream_wait({}): its owner may have destroyed it", to_string(stream));
  if (streams_.is_capturing(on))  // the driver would end the capture for that
    throw CaptureRefusal(fmt::format(
        "stream_wait({}): the stream captures a graph, which cannot wait for work outside of it",
        to_string(stream)));
  const cu::Event recorded = streams_.recorded("stream_wait", event);
  if (recorded != nullptr) driver_->call(driver_->stream_wait_event, on, recorded, 0u);
}

void CudaBackend::destroy_event(Event event) {
  const std::lock_guard guard(mutex_);
  streams_.destroy(event);
}

bool CudaBackend::is_reachable(Stream stream) const {
  const std::lock_guard guard(mutex_);
  streams_.handle("synchronize", stream);
  return streams_.is_reachable(stream);
}

void CudaBackend::synchronize(Stream stream) {
  if (!is_reachable(stream)) return synchronize();  // Note [Borrowed streams]
  const WaitingCall call(*this);
  const cu::Stream on = [&] {
    const std::lock_guard guard(mutex_);
    const cu::Stream handle = streams_.handle("synchronize", stream);
    if (streams_.is_capturing(handle))  // the driver would end the capture for that
      throw CaptureRefusal(fmt::format("synchronize({}): the stream captures a graph",
                                       to_string(stream)));
    return handle;
  }();
  driver_->call(driver_->stream_synchronize, on);
}

void CudaBackend::synchronize() {
  const WaitingCall call(*this);
  {
    const std::lock_guard guard(mutex_);
    if (streams_.any_capturing())  // the driver would end the capture for that
      throw CaptureRefusal(fmt::format("synchronize: a stream of {} captures a graph",
                                       to_string(device_)));
  }
  driver_->call(driver_->ctx_synchronize);
}

// --- Accounts.

DriverLedger CudaBackend::ledger() const {
  const std::lock_guard guard(mutex_);
  return ledger_;
}

void CudaBackend::set_purpose(DriverPurpose purpose) {
  const std::lock_guard guard(mutex_);
  purpose_ = purpose;
}

// --- The process's devices.

CudaBackend& cuda_backend(int index) {
  static std::mutex mutex;
  static auto& backends = *new std::map<int, CudaBackend*>();
  const auto driver = CudaDriver::standard();
  driver->require_same_process();
  const std::lock_guard guard(mutex);
  auto found = backends.find(index);
  if (found == backends.end())
    found = backends.emplace(index, new CudaBackend(driver, index)).first;
  return *found->second;
}

}  // namespace tenon
