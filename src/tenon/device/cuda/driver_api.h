// NVIDIA's driver API as far as Tenon calls it, declared here so that nothing is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>

// Names are Tenon's, layouts and values are cuda.h's; tests/device/cuda_abi_test.cc compares them
// with the toolkit's header where there is one.
namespace tenon::cu {

using Result = int;                       // CUresult
using DeviceId = int;                     // CUdevice
using Address = unsigned long long;       // CUdeviceptr
using Allocation = unsigned long long;    // CUmemGenericAllocationHandle
using Context = struct ContextRecord*;    // CUcontext
using Stream = struct StreamRecord*;      // CUstream; null is the legacy default stream
using Event = struct EventRecord*;        // CUevent
using Module = struct ModuleRecord*;      // CUmodule
using Function = struct FunctionRecord*;  // CUfunction
using Graph = struct GraphRecord*;        // CUgraph
using GraphExec = struct GraphExecRecord*;  // CUgraphExec

inline constexpr Result kSuccess = 0;
inline constexpr Result kErrorInvalidValue = 1;
inline constexpr Result kErrorOutOfMemory = 2;
inline constexpr Result kErrorNotInitialized = 3;
inline constexpr Result kErrorDeinitialized = 4;
inline constexpr Result kErrorStubLibrary = 34;
inline constexpr Result kErrorDeviceUnavailable = 46;
inline constexpr Result kErrorNoDevice = 100;
inline constexpr Result kErrorInvalidDevice = 101;
inline constexpr Result kErrorInvalidImage = 200;
inline constexpr Result kErrorInvalidContext = 201;
inline constexpr Result kErrorEccUncorrectable = 214;
inline constexpr Result kErrorNvlinkUncorrectable = 220;
inline constexpr Result kErrorContained = 226;
inline constexpr Result kErrorInvalidHandle = 400;
inline constexpr Result kErrorNotFound = 500;
inline constexpr Result kErrorNotReady = 600;
inline constexpr Result kErrorIllegalAddress = 700;
inline constexpr Result kErrorLaunchTimeout = 702;
inline constexpr Result kErrorPeerAccessAlreadyEnabled = 704;
inline constexpr Result kErrorContextIsDestroyed = 709;
inline constexpr Result kErrorAssert = 710;
inline constexpr Result kErrorHardwareStack = 714;
inline constexpr Result kErrorIllegalInstruction = 715;
inline constexpr Result kErrorMisalignedAddress = 716;
inline constexpr Result kErrorInvalidAddressSpace = 717;
inline constexpr Result kErrorInvalidPc = 718;
inline constexpr Result kErrorLaunchFailed = 719;
inline constexpr Result kErrorNotSupported = 801;
inline constexpr Result kErrorStreamCaptureUnsupported = 900;
inline constexpr Result kErrorStreamCaptureInvalidated = 901;
inline constexpr Result kErrorStreamCaptureIsolation = 905;
inline constexpr Result kErrorStreamCaptureImplicit = 906;
inline constexpr Result kErrorCapturedEvent = 907;
inline constexpr Result kErrorUnknown = 999;

// CUdevice_attribute
inline constexpr int kAttributeUnifiedAddressing = 41;
inline constexpr int kAttributeComputeMajor = 75;
inline constexpr int kAttributeComputeMinor = 76;
inline constexpr int kAttributeManagedMemory = 83;
inline constexpr int kAttributeVirtualMemory = 102;
inline constexpr int kAttributeExportsFileDescriptors = 103;
inline constexpr int kAttributeRdmaWithVirtualMemory = 110;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kAttachGlobal = 1;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;
inline constexpr std::uintptr_t kStreamLegacy = 1;     // CU_STREAM_LEGACY
inline constexpr std::uintptr_t kStreamPerThread = 2;  // CU_STREAM_PER_THREAD

inline constexpr int kHandleNone = 0;
inline constexpr int kHandleFileDescriptor = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr int kAllocationPinned = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr int kGranularityMinimum = 0;

inline constexpr int kCaptureNone = 0;     // CUstreamCaptureStatus
inline constexpr int kCaptureActive = 1;
inline constexpr int kCaptureInvalidated = 2;
inline constexpr int kCaptureModeGlobal = 0;  // CUstreamCaptureMode
inline constexpr int kCaptureModeThreadLocal = 1;
inline constexpr int kCaptureModeRelaxed = 2;

struct Location {  // CUmemLocation
  int type = 0;
  int id = 0;
};

struct AllocationProperties {  // CUmemAllocationProp
  int type = 0;
  int requested_handle_types = 0;
  Location location;
  void* win32_handle_metadata = nullptr;
  unsigned char compression_type = 0;
  unsigned char gpu_direct_rdma_capable = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};

struct AccessDescription {  // CUmemAccessDesc
  Location location;
  int flags = 0;
};

struct IpcMemoryHandle {  // CUipcMemHandle
  char reserved[64] = {};
};

// Every function that Tenon calls: X(member, exported symbol, parameters...). Symbols carry the
// version that cuda.h's macros choose for CUDA 13; an exported versioned symbol never changes its
// meaning, so they are looked up by name, without cuGetProcAddress. None is a _ptsz variant: a null
// stream is the legacy default stream.
#define TENON_CUDA_FUNCTIONS(X)                                                              \
  X(init, "cuInit", unsigned)                                                                \
  X(driver_get_version, "cuDriverGetVersion", int*)                                          \
  X(get_error_name, "cuGetErrorName", Result, const char**)                                  \
  X(get_error_string, "cuGetErrorString", Result, const char**)                              \
  X(device_get_count, "cuDeviceGetCount", int*)                                              \
  X(device_get, "cuDeviceGet", DeviceId*, int)                                               \
  X(device_get_name, "cuDeviceGetName", char*, int, DeviceId)                                \
  X(device_get_attribute, "cuDeviceGetAttribute", int*, int, DeviceId)                       \
  X(device_total_mem, "cuDeviceTotalMem_v2", std::size_t*, DeviceId)                         \
  X(device_can_access_peer, "cuDeviceCanAccessPeer", int*, DeviceId, DeviceId)               \
  X(primary_ctx_retain, "cuDevicePrimaryCtxRetain", Context*, DeviceId)                      \
  X(primary_ctx_release, "cuDevicePrimaryCtxRelease_v2", DeviceId)                           \
  X(primary_ctx_get_state, "cuDevicePrimaryCtxGetState", DeviceId, unsigned*, int*)          \
  X(ctx_get_current, "cuCtxGetCurrent", Context*)                                            \
  X(ctx_push_current, "cuCtxPushCurrent_v2", Context)                                        \
  X(ctx_pop_current, "cuCtxPopCurrent_v2", Context*)                                         \
  X(ctx_get_device, "cuCtxGetDevice", DeviceId*)                                             \
  X(ctx_synchronize, "cuCtxSynchronize")                                                     \
  X(ctx_enable_peer_access, "cuCtxEnablePeerAccess", Context, unsigned)                      \
  X(mem_get_info, "cuMemGetInfo_v2", std::size_t*, std::size_t*)                             \
  X(mem_alloc, "cuMemAlloc_v2", Address*, std::size_t)                                       \
  X(mem_free, "cuMemFree_v2", Address)                                                       \
  X(mem_host_alloc, "cuMemHostAlloc", void**, std::size_t, unsigned)                         \
  X(mem_free_host, "cuMemFreeHost", void*)                                                   \
  X(mem_alloc_managed, "cuMemAllocManaged", Address*, std::size_t, unsigned)                 \
  X(memcpy_async, "cuMemcpyAsync", Address, Address, std::size_t, Stream)                    \
  X(memset_d8_async, "cuMemsetD8Async", Address, unsigned char, std::size_t, Stream)         \
  X(mem_get_granularity, "cuMemGetAllocationGranularity", std::size_t*,                      \
    const AllocationProperties*, int)                                                        \
  X(mem_address_reserve, "cuMemAddressReserve", Address*, std::size_t, std::size_t, Address, \
    unsigned long long)                                                                      \
  X(mem_address_free, "cuMemAddressFree", Address, std::size_t)                              \
  X(mem_create, "cuMemCreate", Allocation*, std::size_t, const AllocationProperties*,        \
    unsigned long long)                                                                      \
  X(mem_release, "cuMemRelease", Allocation)                                                 \
  X(mem_map, "cuMemMap", Address, std::size_t, std::size_t, Allocation, unsigned long long)  \
  X(mem_set_access, "cuMemSetAccess", Address, std::size_t, const AccessDescription*,        \
    std::size_t)                                                                             \
  X(mem_unmap, "cuMemUnmap", Address, std::size_t)                                           \
  X(mem_export, "cuMemExportToShareableHandle", void*, Allocation, int, unsigned long long)  \
  X(mem_import, "cuMemImportFromShareableHandle", Allocation*, void*, int)                   \
  X(ipc_get_mem_handle, "cuIpcGetMemHandle", IpcMemoryHandle*, Address)                      \
  X(ipc_open_mem_handle, "cuIpcOpenMemHandle_v2", Address*, IpcMemoryHandle, unsigned)       \
  X(ipc_close_mem_handle, "cuIpcCloseMemHandle", Address)                                    \
  X(stream_create, "cuStreamCreate", Stream*, unsigned)                                      \
  X(stream_destroy, "cuStreamDestroy_v2", Stream)                                            \
  X(stream_get_ctx, "cuStreamGetCtx", Stream, Context*)                                      \
  X(stream_synchronize, "cuStreamSynchronize", Stream)                                       \
  X(stream_wait_event, "cuStreamWaitEvent", Stream, Event, unsigned)                         \
  X(stream_is_capturing, "cuStreamIsCapturing", Stream, int*)                                \
  X(stream_begin_capture, "cuStreamBeginCapture_v2", Stream, int)                            \
  X(stream_end_capture, "cuStreamEndCapture", Stream, Graph*)                                \
  X(thread_exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", int*)                 \
  X(event_create, "cuEventCreate", Event*, unsigned)                                         \
  X(event_destroy, "cuEventDestroy_v2", Event)                                               \
  X(event_record, "cuEventRecord", Event, Stream)                                            \
  X(event_query, "cuEventQuery", Event)                                                      \
  X(event_synchronize, "cuEventSynchronize", Event)                                          \
  X(graph_instantiate, "cuGraphInstantiateWithFlags", GraphExec*, Graph, unsigned long long) \
  X(graph_launch, "cuGraphLaunch", GraphExec, Stream)                                        \
  X(graph_exec_destroy, "cuGraphExecDestroy", GraphExec)                                     \
  X(graph_destroy, "cuGraphDestroy", Graph)                                                  \
  X(module_load_data, "cuModuleLoadData", Module*, const void*)                              \
  X(module_unload, "cuModuleUnload", Module)                                                 \
  X(module_get_function, "cuModuleGetFunction", Function*, Module, const char*)              \
  X(launch_kernel, "cuLaunchKernel", Function, unsigned, unsigned, unsigned, unsigned,       \
    unsigned, unsigned, unsigned, Stream, void**, void**)

// Functions that drivers before CUDA 12 lack: null there.
#define TENON_CUDA_LATER_FUNCTIONS(X) \
  X(stream_get_id, "cuStreamGetId", Stream, unsigned long long*)

// One function of the driver, and its name for errors.
template <typename... Parameters>
struct DriverFunction {
  Result (*pointer)(Parameters...) = nullptr;
  const char* name = "";

  Result operator()(Parameters... arguments) const { return pointer(arguments...); }
  explicit operator bool() const { return pointer != nullptr; }
};

struct Functions {
#define TENON_CUDA_MEMBER(member, symbol, ...) DriverFunction<__VA_ARGS__> member;
  TENON_CUDA_FUNCTIONS(TENON_CUDA_MEMBER)
  TENON_CUDA_LATER_FUNCTIONS(TENON_CUDA_MEMBER)
#undef TENON_CUDA_MEMBER
};

}  // namespace tenon::cu
