// The stand-in's functions: memory.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "cuda_stand_in/world.h"

using namespace tenon::stand_in;
using namespace tenon::cu;
using tenon::cu::Result;

namespace {

constexpr char kIpcMagic[8] = {'s', 't', 'a', 'n', 'd', '-', 'i', 'n'};

struct IpcRecord {
  char magic[8];
  pid_t process;
  int file;
  int device;
  std::uint64_t size;
};

bool granular(std::uint64_t value) { return value % kGranularity == 0; }

Address take_piece(World& w, std::size_t size, Piece::Kind kind) {
  const std::uint64_t rounded = (size + kHostPage - 1) / kHostPage * kHostPage;
  Piece piece{kind, rounded, current_context()->device, make_file(rounded)};
  const auto address = reinterpret_cast<Address>(map_file(piece.file, rounded, nullptr));
  std::memset(reinterpret_cast<void*>(address), 0xA5, std::min<std::size_t>(rounded, 64));
  w.pieces.emplace(address, piece);
  return address;
}

void drop_piece(World& w, std::map<std::uint64_t, Piece>::iterator it) {
  ::munmap(reinterpret_cast<void*>(it->first), it->second.size);
  if (it->second.file >= 0) ::close(it->second.file);
  w.pieces.erase(it);
}

// The range must lie in one reservation.
bool reserved(const World& w, Address address, std::uint64_t size) {
  auto it = w.ranges.upper_bound(address);
  if (it == w.ranges.begin()) return false;
  --it;
  return address + size <= it->first + it->second;
}

bool overlaps_mapping(const World& w, Address address, std::uint64_t size) {
  auto it = w.mappings.lower_bound(address + size);
  return it != w.mappings.begin() && std::prev(it)->first + std::prev(it)->second.size > address;
}

}  // namespace

extern "C" {

Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  STAND_IN_ENTER("cuMemGetInfo_v2");
  const auto i = static_cast<std::size_t>(current_context()->device);
  const std::uint64_t held = w.used[i] + w.taken[i];
  *total = w.setup.capacity;
  *free = w.setup.capacity - std::min(held, w.setup.capacity);
  return kSuccess;
}

Result cuMemAlloc_v2(Address* address, std::size_t size) {
  STAND_IN_ENTER("cuMemAlloc_v2");
  if (size == 0) return w.fault(kErrorInvalidValue, "cuMemAlloc of nothing");
  if (const Result bad = w.forbid_while_capturing("cuMemAlloc"); bad != kSuccess) return bad;
  const int device = current_context()->device;
  const std::uint64_t rounded = (size + kHostPage - 1) / kHostPage * kHostPage;
  if (!w.has_room(device, rounded)) return kErrorOutOfMemory;
  *address = take_piece(w, size, Piece::Kind::kDevice);
  w.used[static_cast<std::size_t>(device)] += rounded;
  return kSuccess;
}

Result cuMemAllocManaged(Address* address, std::size_t size, unsigned flags) {
  STAND_IN_ENTER("cuMemAllocManaged");
  if (const Result bad = w.forbid_while_capturing("cuMemAllocManaged"); bad != kSuccess) return bad;
  if (size == 0 || flags != kAttachGlobal)
    return w.fault(kErrorInvalidValue, "cuMemAllocManaged: size or flags");
  *address = take_piece(w, size, Piece::Kind::kManaged);
  return kSuccess;
}

Result cuMemFree_v2(Address address) {
  STAND_IN_ENTER("cuMemFree_v2");
  if (const Result bad = w.forbid_while_capturing("cuMemFree"); bad != kSuccess) return bad;
  const auto it = w.pieces.find(address);
  if (it == w.pieces.end() || it->second.kind == Piece::Kind::kHost ||
      it->second.kind == Piece::Kind::kImported)
    return w.fault(kErrorInvalidValue, fmt::format("cuMemFree({:#x}): no allocation", address));
  w.run_everything(it->second.device);  // it waits for the device
  if (it->second.kind == Piece::Kind::kDevice)
    w.used[static_cast<std::size_t>(it->second.device)] -= it->second.size;
  drop_piece(w, it);
  return w.lost;
}

Result cuMemHostAlloc(void** address, std::size_t size, unsigned) {
  STAND_IN_ENTER("cuMemHostAlloc");
  if (const Result bad = w.forbid_while_capturing("cuMemHostAlloc"); bad != kSuccess) return bad;
  if (size == 0) return w.fault(kErrorInvalidValue, "cuMemHostAlloc of nothing");
  *address = reinterpret_cast<void*>(take_piece(w, size, Piece::Kind::kHost));
  w.pinned += w.pieces.at(reinterpret_cast<Address>(*address)).size;
  return kSuccess;
}

Result cuMemFreeHost(void* address) {
  STAND_IN_ENTER("cuMemFreeHost");
  if (const Result bad = w.forbid_while_capturing("cuMemFreeHost"); bad != kSuccess) return bad;
  const auto it = w.pieces.find(reinterpret_cast<Address>(address));
  if (it == w.pieces.end() || it->second.kind != Piece::Kind::kHost)
    return w.fault(kErrorInvalidValue, "cuMemFreeHost: no pinned memory");
  for (int device = 0; device < w.setup.devices; ++device) w.run_everything(device);
  w.pinned -= it->second.size;
  drop_piece(w, it);
  return w.lost;
}

// --- Virtual memory.

Result cuMemGetAllocationGranularity(std::size_t* bytes, const AllocationProperties* properties,
                                     int) {
  STAND_IN_ENTER("cuMemGetAllocationGranularity");
  if (properties->type != kAllocationPinned || properties->location.type != kLocationDevice)
    return w.fault(kErrorInvalidValue, "cuMemGetAllocationGranularity: properties");
  *bytes = kGranularity;
  return kSuccess;
}

Result cuMemAddressReserve(Address* address, std::size_t size, std::size_t alignment, Address,
                           unsigned long long flags) {
  STAND_IN_ENTER("cuMemAddressReserve");
  if (const Result bad = w.forbid_while_capturing("cuMemAddressReserve"); bad != kSuccess)
    return bad;
  if (size == 0 || size % kGranularity != 0 || (alignment & (alignment - 1)) != 0 || flags != 0)
    return w.fault(kErrorInvalidValue, "cuMemAddressReserve: size, alignment or flags");
  const std::size_t aligned = std::max<std::size_t>(alignment, kGranularity);
  void* wide = ::mmap(nullptr, size + aligned, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (wide == MAP_FAILED) return kErrorOutOfMemory;
  const auto begin = reinterpret_cast<Address>(wide);
  const Address base = (begin + aligned - 1) / aligned * aligned;
  if (base > begin) ::munmap(wide, base - begin);
  const std::size_t behind = begin + aligned - base;
  if (behind > 0) ::munmap(reinterpret_cast<void*>(base + size), behind);
  w.ranges.emplace(base, size);
  *address = base;
  return kSuccess;
}

Result cuMemAddressFree(Address address, std::size_t size) {
  STAND_IN_ENTER("cuMemAddressFree");
  if (const Result bad = w.forbid_while_capturing("cuMemAddressFree"); bad != kSuccess) return bad;
  const auto it = w.ranges.find(address);
  if (it == w.ranges.end() || it->second != size || overlaps_mapping(w, address, size))
    return w.fault(kErrorInvalidValue,
                   fmt::format("cuMemAddressFree({:#x}, {}): no such range, or mapped", address,
                               size));
  ::munmap(reinterpret_cast<void*>(address), size);
  w.ranges.erase(it);
  return kSuccess;
}

Result cuMemCreate(Allocation* handle, std::size_t size, const AllocationProperties* properties,
                   unsigned long long flags) {
  STAND_IN_ENTER("cuMemCreate");
  if (const Result bad = w.forbid_while_capturing("cuMemCreate"); bad != kSuccess) return bad;
  if (size == 0 || !granular(size) || flags != 0 || properties->type != kAllocationPinned ||
      properties->location.type != kLocationDevice || properties->location.id < 0 ||
      properties->location.id >= w.setup.devices || properties->win32_handle_metadata != nullptr)
    return w.fault(kErrorInvalidValue, fmt::format("cuMemCreate({}): size or properties", size));
  if (properties->gpu_direct_rdma_capable != 0 && !w.setup.rdma)
    return w.fault(kErrorNotSupported, "cuMemCreate: gpuDirectRDMACapable on a device without it");
  const int device = properties->location.id;
  if (!w.has_room(device, size)) return kErrorOutOfMemory;
  if (properties->gpu_direct_rdma_capable != 0) w.rdma_bytes += size;
  Handle made;
  made.size = size;
  made.device = device;
  made.file = make_file(size);
  made.exportable = (properties->requested_handle_types & kHandleFileDescriptor) != 0;
  *handle = w.next_handle++;
  w.handles.emplace(*handle, made);
  w.used[static_cast<std::size_t>(device)] += size;
  return kSuccess;
}

Result cuMemRelease(Allocation handle) {
  STAND_IN_ENTER("cuMemRelease");
  if (const Result bad = w.forbid_while_capturing("cuMemRelease"); bad != kSuccess) return bad;
  const auto it = w.handles.find(handle);
  if (it == w.handles.end() || it->second.references == 0)
    return w.fault(kErrorInvalidValue, fmt::format("cuMemRelease({:#x}): no such handle", handle));
  --it->second.references;
  w.drop_handle_if_unused(handle);
  return kSuccess;
}

Result cuMemMap(Address address, std::size_t size, std::size_t offset, Allocation handle,
                unsigned long long flags) {
  STAND_IN_ENTER("cuMemMap");
  if (const Result bad = w.forbid_while_capturing("cuMemMap"); bad != kSuccess) return bad;
  const auto it = w.handles.find(handle);
  const auto refuse = [&](const char* why) {
    return w.fault(kErrorInvalidValue,
                   fmt::format("cuMemMap({:#x}, {}, {:#x}): {}", address, size, handle, why));
  };
  if (it == w.handles.end() || it->second.references == 0) return refuse("no such handle");
  if (!granular(address) || !granular(size) || size == 0 || offset != 0 || flags != 0)
    return refuse("alignment");
  // How imports are measured; not a fault.
  if (size > it->second.size) return it->second.imported ? kErrorInvalidValue : refuse("too large");
  if (!reserved(w, address, size)) return refuse("not reserved");
  if (overlaps_mapping(w, address, size)) return refuse("mapped already");
  map_file(it->second.file, size, reinterpret_cast<void*>(address));
  ::mprotect(reinterpret_cast<void*>(address), size, PROT_NONE);
  ++it->second.mappings;
  w.mappings.emplace(address, Mapping{size, handle, {}});
  return kSuccess;
}

Result cuMemSetAccess(Address address, std::size_t size, const AccessDescription* access,
                      std::size_t count) {
  STAND_IN_ENTER("cuMemSetAccess");
  if (const Result bad = w.forbid_while_capturing("cuMemSetAccess"); bad != kSuccess) return bad;
  const Address end = address + size;
  std::vector<Mapping*> covered;
  for (Address at = address; at < end;) {
    const auto it = w.mappings.find(at);
    if (it == w.mappings.end() || at + it->second.size > end)
      return w.fault(kErrorInvalidValue,
                     fmt::format("cuMemSetAccess({:#x}, {}): no whole mappings", address, size));
    covered.push_back(&it->second);
    at += it->second.size;
  }
  if (covered.empty() || count == 0) return w.fault(kErrorInvalidValue, "cuMemSetAccess: nothing");
  for (std::size_t i = 0; i < count; ++i) {
    if (access[i].location.type != kLocationDevice || access[i].flags != kAccessReadWrite)
      return w.fault(kErrorInvalidValue, "cuMemSetAccess: description");
    const int device = access[i].location.id;
    if (device < 0 || device >= w.setup.devices)
      return w.fault(kErrorInvalidDevice, "cuMemSetAccess: no such device");
    for (const Mapping* mapping : covered)
      if (!w.setup.peers && w.handles.at(mapping->handle).device != device)
        return w.fault(kErrorInvalidDevice, "cuMemSetAccess: no path to that device");
    for (Mapping* mapping : covered) mapping->devices.insert(access[i].location.id);
  }
  ::mprotect(reinterpret_cast<void*>(address), size, PROT_READ | PROT_WRITE);
  return kSuccess;
}

Result cuMemUnmap(Address address, std::size_t size) {
  STAND_IN_ENTER("cuMemUnmap");
  if (const Result bad = w.forbid_while_capturing("cuMemUnmap"); bad != kSuccess) return bad;
  const auto it = w.mappings.find(address);
  if (it == w.mappings.end() || it->second.size != size)
    return w.fault(kErrorInvalidValue,
                   fmt::format("cuMemUnmap({:#x}, {}): no whole mapping", address, size));
  // In order with no stream: what is still queued finds nothing here.
  ::mmap(reinterpret_cast<void*>(address), size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  const Allocation handle = it->second.handle;
  w.mappings.erase(it);
  --w.handles.at(handle).mappings;
  w.drop_handle_if_unused(handle);
  return kSuccess;
}

// --- Between processes.

Result cuMemExportToShareableHandle(void* descriptor, Allocation handle, int type,
                                    unsigned long long flags) {
  STAND_IN_ENTER("cuMemExportToShareableHandle");
  const auto it = w.handles.find(handle);
  if (it == w.handles.end() || !it->second.exportable || type != kHandleFileDescriptor || flags)
    return w.fault(kErrorInvalidValue, "cuMemExportToShareableHandle: handle or type");
  *static_cast<int*>(descriptor) = ::dup(it->second.file);
  return kSuccess;
}

Result cuMemImportFromShareableHandle(Allocation* handle, void* descriptor, int type) {
  STAND_IN_ENTER("cuMemImportFromShareableHandle");
  const int file = static_cast<int>(reinterpret_cast<std::uintptr_t>(descriptor));
  struct stat status = {};
  char name[64] = {};
  const std::string link = fmt::format("/proc/self/fd/{}", file);
  if (type != kHandleFileDescriptor || ::fstat(file, &status) != 0 ||
      ::readlink(link.c_str(), name, sizeof(name) - 1) < 0 ||
      std::strstr(name, "tenon-stand-in") == nullptr)
    return kErrorInvalidValue;
  Handle made;
  made.size = static_cast<std::uint64_t>(status.st_size);
  made.device = current_context()->device;
  made.file = ::dup(file);
  made.imported = true;
  *handle = w.next_handle++;
  w.handles.emplace(*handle, made);
  return kSuccess;
}

Result cuIpcGetMemHandle(IpcMemoryHandle* handle, Address address) {
  STAND_IN_ENTER("cuIpcGetMemHandle");
  const auto it = w.pieces.find(address);
  if (it == w.pieces.end() || it->second.kind != Piece::Kind::kDevice)
    return w.fault(kErrorInvalidValue, "cuIpcGetMemHandle: no allocation");
  IpcRecord record = {};
  std::memcpy(record.magic, kIpcMagic, sizeof(kIpcMagic));
  record.process = ::getpid();
  record.file = it->second.file;
  record.device = it->second.device;
  record.size = it->second.size;
  static_assert(sizeof(record) <= sizeof(*handle));
  std::memcpy(handle->reserved, &record, sizeof(record));
  return kSuccess;
}

Result cuIpcOpenMemHandle_v2(Address* address, IpcMemoryHandle handle, unsigned flags) {
  STAND_IN_ENTER("cuIpcOpenMemHandle_v2");
  IpcRecord record = {};
  std::memcpy(&record, handle.reserved, sizeof(record));
  if (std::memcmp(record.magic, kIpcMagic, sizeof(kIpcMagic)) != 0 ||
      flags != kIpcLazyEnablePeerAccess)
    return kErrorInvalidValue;
  if (record.process == ::getpid())
    return kErrorInvalidContext;  // not in the process that owns it
  const std::string path = fmt::format("/proc/{}/fd/{}", record.process, record.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return kErrorInvalidHandle;
  *address = reinterpret_cast<Address>(map_file(file, record.size, nullptr));
  w.pieces.emplace(*address, Piece{Piece::Kind::kImported, record.size, record.device, file});
  return kSuccess;
}

Result cuIpcCloseMemHandle(Address address) {
  STAND_IN_ENTER("cuIpcCloseMemHandle");
  const auto it = w.pieces.find(address);
  if (it == w.pieces.end() || it->second.kind != Piece::Kind::kImported)
    return w.fault(kErrorInvalidValue, "cuIpcCloseMemHandle: not imported");
  drop_piece(w, it);
  return kSuccess;
}

}  // extern "C"
