// A CUDA driver, runtime and NVML without a device, as far as PyTorch's caching allocator calls
// them: memory is numbers, work is done at once. As mostly with NVIDIA's driver, each new segment
// lies below all earlier ones. Loaded before the real runtime (LD_PRELOAD). Not thread-safe.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>

namespace {

constexpr std::uint64_t kDeviceBytes = std::uint64_t{1} << 42;
constexpr std::uint64_t kGranularity = std::uint64_t{2} << 20;

std::uint64_t used = 0;
std::uint64_t lowest = std::uint64_t{1} << 46;
std::map<std::uint64_t, std::uint64_t> sizes;  // by address, or by handle

std::uint64_t new_address(std::uint64_t bytes) {
  return lowest = (lowest - bytes) / kGranularity * kGranularity;
}

bool take(std::uint64_t name, std::uint64_t bytes) {
  if (bytes > kDeviceBytes - used) return false;
  used += sizes[name] = bytes;
  return true;
}

void give_back(std::uint64_t name) {
  const auto at = sizes.find(name);
  used -= at->second;
  sizes.erase(at);
}

CUresult succeed() { return CUDA_SUCCESS; }
CUresult refuse() { return CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace

extern "C" {

// --- The driver. libc10_cuda asks for these by name, from the runtime or from libcuda.so.1.
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "an error of the driver without a device";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                             unsigned long long) {
  *address = new_address(bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp*, unsigned long long) {
  static std::uint64_t last = 0;  // below every address
  *handle = ++last;
  return take(*handle, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  give_back(handle);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr, size_t) { return succeed(); }
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return succeed();
}
CUresult cuMemUnmap(CUdeviceptr, size_t) { return succeed(); }
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return succeed(); }

// --- The runtime.
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  const std::uint64_t held = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  const std::uint64_t address = new_address(held);
  if (!take(address, held)) return cudaErrorMemoryAllocation;
  *pointer = reinterpret_cast<void*>(address);
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  if (pointer != nullptr) give_back(reinterpret_cast<std::uint64_t>(pointer));
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = kDeviceBytes - used;
  *total = kDeviceBytes;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* number) {
  *number = CUDA_VERSION;
  return cudaSuccess;
}
static cudaError_t describe(cudaDeviceProp* device) {
  std::memset(device, 0, sizeof *device);
  device->totalGlobalMem = kDeviceBytes;
  device->major = 9;
  return cudaSuccess;
}
#undef cudaGetDeviceProperties
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* device, int) { return describe(device); }
cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* device, int) { return describe(device); }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
// Its other arguments, which depend on the version, are not asked for.
cudaError_t capture_info(cudaStream_t, cudaStreamCaptureStatus*) asm("cudaStreamGetCaptureInfo");
cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(1);
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorMemoryAllocation"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

#define TENON_NAMED(function) {#function, reinterpret_cast<void*>(&function)}
#undef cudaGetDriverEntryPointByVersion
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  static const std::map<std::string_view, void*> kFunctions = {
      TENON_NAMED(cuGetErrorString), TENON_NAMED(cuDeviceGet),
      TENON_NAMED(cuDeviceGetAttribute), TENON_NAMED(cuMemAddressReserve),
      TENON_NAMED(cuMemAddressFree), TENON_NAMED(cuMemCreate), TENON_NAMED(cuMemRelease),
      TENON_NAMED(cuMemMap), TENON_NAMED(cuMemUnmap), TENON_NAMED(cuMemSetAccess)};
  const auto found = kFunctions.find(name);
  *function = found == kFunctions.end() ? reinterpret_cast<void*>(&refuse) : found->second;
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// --- NVML, of which PyTorch asks whether the device belongs to a fabric.
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** device) {
  *device = nullptr;
  return 0;
}
int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return 0; }
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}

// --- What must exist, and is not called. 3 is "not supported".
#define TENON_UNUSED(function)                \
  int no_device_##function() asm(#function); \
  int no_device_##function() { return 3; }
TENON_UNUSED(cuMemGetAllocationGranularity)
TENON_UNUSED(cuMemExportToShareableHandle)
TENON_UNUSED(cuMemImportFromShareableHandle)
TENON_UNUSED(cuMemsetD32Async)
TENON_UNUSED(cuStreamWriteValue32)
TENON_UNUSED(nvmlDeviceGetNvLinkRemoteDeviceType)
TENON_UNUSED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
TENON_UNUSED(nvmlSystemGetCudaDriverVersion_v2)

}  // extern "C"
