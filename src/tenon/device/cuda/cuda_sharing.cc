// CudaBackend: memory shared with other processes and with other devices.
#include <fmt/format.h>

#include <algorithm>

#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/device/cuda/cuda_calls.h"

namespace tenon {

// --- Between processes: pages, by file descriptor.

std::int64_t CudaBackend::export_pages(PageHandle pages) {
  if (!limits_.can_export) return Backend::export_pages(pages);
  const CudaScope scope(*driver_, context_);
  const std::lock_guard guard(mutex_);
  const cu::Allocation backing = table_.backing("export_pages", pages);
  int descriptor = -1;
  driver_->call(driver_->mem_export, static_cast<void*>(&descriptor), backing,
                cu::kHandleFileDescriptor, 0ull);
  return descriptor;
}

PageHandle CudaBackend::import_pages(std::int64_t token, std::uint64_t size_bytes) {
  if (!limits_.can_export) return Backend::import_pages(token, size_bytes);
  const CudaScope scope(*driver_, context_);
  const std::lock_guard guard(mutex_);
  table_.require_pages_size(size_bytes);
  cu::Allocation pages = 0;
  driver_->call(driver_->mem_import, &pages,
                reinterpret_cast<void*>(static_cast<std::uintptr_t>(token)),
                cu::kHandleFileDescriptor);
  // The driver does not report the size of an imported handle; trying to map sizes finds it.
  const bool fits = maps_as(pages, size_bytes);
  if (!fits || maps_as(pages, size_bytes + limits_.page_granularity)) {
    driver_->mem_release(pages);
    raise<DeviceError>("import_pages({}, {}): the memory is {} than that", token, size_bytes,
                       fits ? "larger" : "smaller");
  }
  hold(size_bytes);  // another's, but it counts here while it is held
  return table_.add_pages(size_bytes, pages);
}

// Whether the handle can be mapped with this size; tries it at addresses of its own.
bool CudaBackend::maps_as(cu::Allocation pages, std::uint64_t size_bytes) {
  cu::Address base = 0;
  driver_->call(driver_->mem_address_reserve, &base, std::size_t{size_bytes},
                std::size_t{limits_.page_granularity}, cu::Address{0}, 0ull);
  const cu::Result mapped =
      driver_->mem_map(base, std::size_t{size_bytes}, std::size_t{0}, pages, 0ull);
  if (mapped == cu::kSuccess)
    driver_->call(driver_->mem_unmap, base, std::size_t{size_bytes});
  driver_->call(driver_->mem_address_free, base, std::size_t{size_bytes});
  return mapped == cu::kSuccess;
}

// --- Between processes: segments, by IPC handle.

CudaIpcSegment CudaBackend::export_segment(const Segment& segment) {
  const CudaScope scope(*driver_, context_);
  const std::lock_guard guard(mutex_);
  table_.require_segment(segment);
  if (origins_.at(segment.handle) != Origin::kDevice)
    raise<DeviceError>("export_segment({}): only memory that was allocated on {} by "
                       "this process can be shared", segment.base, to_string(device_));
  CudaIpcSegment shared;
  shared.size_bytes = segment.size_bytes;
  driver_->call(driver_->ipc_get_mem_handle, &shared.handle,
                cu::Address{reinterpret_cast<std::uintptr_t>(segment.base)});
  return shared;
}

Segment CudaBackend::import_segment(const CudaIpcSegment& shared) {
  const CudaScope scope(*driver_, context_);
  const std::lock_guard guard(mutex_);
  table_.require_segment_size(shared.size_bytes);
  cu::Address address = 0;
  driver_->call(driver_->ipc_open_mem_handle, &address, shared.handle,
                cu::kIpcLazyEnablePeerAccess);
  Segment segment{reinterpret_cast<void*>(address), nullptr, shared.size_bytes, 0,
                  MemoryKind::kDevice};
  segment.handle = table_.add_segment(address, shared.size_bytes);
  origins_.emplace(segment.handle, Origin::kImported);
  return segment;
}

// --- Between devices.

bool CudaBackend::can_be_reached_by(const CudaBackend& peer) const {
  int can = 0;
  driver_->call(driver_->device_can_access_peer, &can, peer.id_, id_);
  return can != 0;
}

void CudaBackend::allow_peer(const CudaBackend& peer) {
  const std::string call =
      fmt::format("allow_peer({} to {})", to_string(peer.device_), to_string(device_));
  if (&peer == this) throw DeviceError(call + ": a device is no peer of itself");
  if (!can_be_reached_by(peer))
    throw DeviceError(call + ": the hardware has no path between them; copy through the host");
  {  // memory of cuMemAlloc, by context
    const CudaScope in_peer(*driver_, peer.context_);
    const cu::Result result = driver_->ctx_enable_peer_access(context_, 0u);
    if (result != cu::kSuccess && result != cu::kErrorPeerAccessAlreadyEnabled)
      driver_->fail(result, CudaDriver::describe(driver_->ctx_enable_peer_access, context_, 0u));
  }
  const CudaScope scope(*driver_, context_);  // mapped pages, each mapping by itself
  const std::lock_guard guard(mutex_);
  if (std::find(peers_.begin(), peers_.end(), peer.id_) != peers_.end()) return;
  const cu::AccessDescription access = {{cu::kLocationDevice, peer.id_},
                                        cu::kAccessReadWrite};
  table_.for_each_accessible_mapping([&](std::uintptr_t address, PageHandle pages) {
    driver_->call(driver_->mem_set_access, cu::Address{address}, std::size_t{pages.size_bytes},
                  &access, std::size_t{1});
  });
  peers_.push_back(peer.id_);
}

}  // namespace tenon
