// Our declarations of the driver API against the toolkit's own, where it is installed.
#include <gtest/gtest.h>

#ifdef TENON_CUDA_HEADER
#include TENON_CUDA_HEADER
#endif

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "support/cuda_stand_in.h"
#include "support/temporary.h"
#include "tenon/device/cuda/driver_api.h"
#include "tenon/device/cuda/stamp_kernels.h"

namespace tenon {
namespace {

#ifdef TENON_CUDA_HEADER

// The same number of parameters, of the same sizes and sorts (CUDA's handles are pointers).
template <typename Ours, typename Theirs>
constexpr bool same_parameter() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) return true;
  if constexpr (std::is_pointer_v<Ours> != std::is_pointer_v<Theirs>) return false;
  return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
         std::is_class_v<Ours> == std::is_class_v<Theirs>;
}
template <typename... Ours, typename... Theirs>
constexpr bool same_signature(const cu::DriverFunction<Ours...>&,
                              CUresult (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs))
    return false;
  else
    return (same_parameter<Ours, Theirs>() && ...);
}

// By the names that cuda.h's macros turn into the symbols we look up.
#define TENON_SAME(member, function) \
  EXPECT_TRUE(same_signature(cu::Functions{}.member, &function)) << #function

TEST(CudaAbi, FunctionsTakeWhatTheToolkitSays) {
  TENON_SAME(init, cuInit);
  TENON_SAME(driver_get_version, cuDriverGetVersion);
  TENON_SAME(get_error_name, cuGetErrorName);
  TENON_SAME(get_error_string, cuGetErrorString);
  TENON_SAME(device_get_count, cuDeviceGetCount);
  TENON_SAME(device_get, cuDeviceGet);
  TENON_SAME(device_get_name, cuDeviceGetName);
  TENON_SAME(device_get_attribute, cuDeviceGetAttribute);
  TENON_SAME(device_total_mem, cuDeviceTotalMem);
  TENON_SAME(device_can_access_peer, cuDeviceCanAccessPeer);
  TENON_SAME(primary_ctx_retain, cuDevicePrimaryCtxRetain);
  TENON_SAME(primary_ctx_release, cuDevicePrimaryCtxRelease);
  TENON_SAME(primary_ctx_get_state, cuDevicePrimaryCtxGetState);
  TENON_SAME(ctx_get_current, cuCtxGetCurrent);
  TENON_SAME(ctx_push_current, cuCtxPushCurrent);
  TENON_SAME(ctx_pop_current, cuCtxPopCurrent);
  TENON_SAME(ctx_get_device, cuCtxGetDevice);
  TENON_SAME(ctx_enable_peer_access, cuCtxEnablePeerAccess);
  TENON_SAME(mem_get_info, cuMemGetInfo);
  TENON_SAME(mem_alloc, cuMemAlloc);
  TENON_SAME(mem_free, cuMemFree);
  TENON_SAME(mem_host_alloc, cuMemHostAlloc);
  TENON_SAME(mem_free_host, cuMemFreeHost);
  TENON_SAME(mem_alloc_managed, cuMemAllocManaged);
  TENON_SAME(memcpy_async, cuMemcpyAsync);
  TENON_SAME(memset_d8_async, cuMemsetD8Async);
  TENON_SAME(mem_get_granularity, cuMemGetAllocationGranularity);
  TENON_SAME(mem_address_reserve, cuMemAddressReserve);
  TENON_SAME(mem_address_free, cuMemAddressFree);
  TENON_SAME(mem_create, cuMemCreate);
  TENON_SAME(mem_release, cuMemRelease);
  TENON_SAME(mem_map, cuMemMap);
  TENON_SAME(mem_set_access, cuMemSetAccess);
  TENON_SAME(mem_unmap, cuMemUnmap);
  TENON_SAME(mem_export, cuMemExportToShareableHandle);
  TENON_SAME(mem_import, cuMemImportFromShareableHandle);
  TENON_SAME(ipc_get_mem_handle, cuIpcGetMemHandle);
  TENON_SAME(ipc_open_mem_handle, cuIpcOpenMemHandle);
  TENON_SAME(ipc_close_mem_handle, cuIpcCloseMemHandle);
  TENON_SAME(stream_create, cuStreamCreate);
  TENON_SAME(stream_destroy, cuStreamDestroy);
  TENON_SAME(stream_get_ctx, cuStreamGetCtx);
  TENON_SAME(stream_get_id, cuStreamGetId);
  TENON_SAME(stream_synchronize, cuStreamSynchronize);
  TENON_SAME(stream_wait_event, cuStreamWaitEvent);
  TENON_SAME(stream_is_capturing, cuStreamIsCapturing);
  TENON_SAME(stream_begin_capture, cuStreamBeginCapture);
  TENON_SAME(stream_end_capture, cuStreamEndCapture);
  TENON_SAME(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
  TENON_SAME(event_create, cuEventCreate);
  TENON_SAME(event_destroy, cuEventDestroy);
  TENON_SAME(event_record, cuEventRecord);
  TENON_SAME(event_query, cuEventQuery);
  TENON_SAME(event_synchronize, cuEventSynchronize);
  TENON_SAME(graph_instantiate, cuGraphInstantiateWithFlags);
  TENON_SAME(graph_launch, cuGraphLaunch);
  TENON_SAME(graph_exec_destroy, cuGraphExecDestroy);
  TENON_SAME(graph_destroy, cuGraphDestroy);
  TENON_SAME(module_load_data, cuModuleLoadData);
  TENON_SAME(module_unload, cuModuleUnload);
  TENON_SAME(module_get_function, cuModuleGetFunction);
  TENON_SAME(launch_kernel, cuLaunchKernel);
}

TEST(CudaAbi, StructuresLieAsInTheToolkit) {
  static_assert(sizeof(cu::Result) == sizeof(CUresult));
  static_assert(sizeof(cu::Location) == sizeof(CUmemLocation));
  static_assert(sizeof(cu::AllocationProperties) == sizeof(CUmemAllocationProp));
  static_assert(sizeof(cu::AccessDescription) == sizeof(CUmemAccessDesc));
  static_assert(sizeof(cu::IpcMemoryHandle) == sizeof(CUipcMemHandle));
  EXPECT_EQ(offsetof(cu::AllocationProperties, requested_handle_types),
            offsetof(CUmemAllocationProp, requestedHandleTypes));
  EXPECT_EQ(offsetof(cu::AllocationProperties, location), offsetof(CUmemAllocationProp, location));
  EXPECT_EQ(offsetof(cu::AllocationProperties, win32_handle_metadata),
            offsetof(CUmemAllocationProp, win32HandleMetaData));
  EXPECT_EQ(offsetof(cu::AllocationProperties, compression_type),
            offsetof(CUmemAllocationProp, allocFlags));
  EXPECT_EQ(offsetof(cu::AccessDescription, flags), offsetof(CUmemAccessDesc, flags));
}

TEST(CudaAbi, NumbersMeanWhatTheToolkitSays) {
  EXPECT_EQ(cu::kErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cu::kErrorStubLibrary, CUDA_ERROR_STUB_LIBRARY);
  EXPECT_EQ(cu::kErrorNoDevice, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(cu::kErrorEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(cu::kErrorContained, CUDA_ERROR_CONTAINED);
  EXPECT_EQ(cu::kErrorNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cu::kErrorPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(cu::kErrorIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cu::kErrorLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cu::kErrorStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(cu::kErrorCapturedEvent, CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(cu::kAttributeVirtualMemory,
            CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  EXPECT_EQ(cu::kAttributeExportsFileDescriptors,
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  EXPECT_EQ(cu::kAttributeComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(cu::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(cu::kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(cu::kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
  EXPECT_EQ(cu::kAttachGlobal, CU_MEM_ATTACH_GLOBAL);
  EXPECT_EQ(cu::kIpcLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  EXPECT_EQ(cu::kHandleFileDescriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(cu::kLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(cu::kAllocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(cu::kAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(cu::kCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(cu::kCaptureInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(CU_STREAM_LEGACY), cu::kStreamLegacy);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD), cu::kStreamPerThread);
}

// The stub has every symbol of the driver and none of its functions.
TEST(CudaAbi, EverySymbolIsInTheToolkitsStub) {
  const std::string stub = TENON_CUDA_TOOLKIT "/lib64/stubs/libcuda.so";
  void* handle = ::dlopen(stub.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) GTEST_SKIP() << "the toolkit has no stub: " << ::dlerror();
#define TENON_IN_STUB(member, symbol, ...) EXPECT_NE(::dlsym(handle, symbol), nullptr) << symbol;
  TENON_CUDA_FUNCTIONS(TENON_IN_STUB)
  TENON_CUDA_LATER_FUNCTIONS(TENON_IN_STUB)
#undef TENON_IN_STUB
  try {
    CudaDriver::open(stub);
    FAIL() << "a stub is no driver";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), cu::kErrorStubLibrary) << error.what();
    EXPECT_NE(std::string(error.what()).find("stub"), std::string::npos) << error.what();
  }
}

// The kernels are text that a driver compiles; the toolkit's assembler reads the same language.
TEST(CudaAbi, TheKernelsAssembleForEveryGeneration) {
  const std::string assembler = TENON_CUDA_TOOLKIT "/bin/ptxas";
  if (::access(assembler.c_str(), X_OK) != 0) GTEST_SKIP() << "the toolkit has no ptxas";
  const testing::TemporaryFile kernels(".ptx", StampKernels::source());
  const std::string& source = kernels.path();
  for (const char* generation : {"sm_75", "sm_80", "sm_90", "sm_100"})
    EXPECT_EQ(std::system(fmt::format("{} -arch={} {} -o /dev/null", assembler, generation,
                                      source)
                              .c_str()),
              0)
        << generation;
}

#else

TEST(CudaAbi, IsComparedWithTheToolkit) {
  GTEST_SKIP() << "no CUDA toolkit: there is no cuda.h to compare with";
}

#endif

// The stand-in's functions are looked up by the same names, and so have to exist.
TEST(CudaAbi, TheStandInHasEverySymbol) {
  const testing::StandIn machine;
  EXPECT_EQ(machine.driver()->device_count(), 1);
  EXPECT_EQ(machine.driver()->version_text(), "13.0");
}

}  // namespace
}  // namespace tenon
