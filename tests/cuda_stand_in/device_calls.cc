// The stand-in's functions: the driver, devices, contexts, modules.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "cuda_stand_in/world.h"

using namespace tenon::stand_in;
using namespace tenon::cu;
using tenon::cu::Result;

// Calls that do not touch the device: they work on a lost one, too.
#define STAND_IN_COUNT(name)                                                                       \
  World& w = world();                                                                              \
  const std::lock_guard lock(w.mutex);                                                             \
  if (const Result scripted = w.scripted_failure(name); scripted != kSuccess) return scripted;     \
  if (w.lost == kErrorDeinitialized) return w.lost;                                                \
  if (!w.initialised) return w.fault(kErrorNotInitialized, name ": no cuInit")

namespace {

// CUDA_VISIBLE_DEVICES, which the driver reads at cuInit alone: ordinals up to the first that names
// no device. (CUDA C++ Programming Guide, "CUDA Environment Variables".)
int visible_devices(int devices) {
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return devices;
  int visible = 0;
  std::istringstream ordinals(text);
  for (std::string ordinal; std::getline(ordinals, ordinal, ',');) {
    char* end = nullptr;
    const long index = std::strtol(ordinal.c_str(), &end, 10);
    if (end == ordinal.c_str() || *end != '\0' || index < 0 || index >= devices) break;
    ++visible;
  }
  return visible;
}

}  // namespace

extern "C" {

Result cuInit(unsigned flags) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  const std::uint64_t number = ++w.calls["cuInit"];
  if (const auto it = w.failures.find({"cuInit", number}); it != w.failures.end())
    return it->second;
  if (flags != 0) return w.fault(kErrorInvalidValue, "cuInit: flags");
  w.setup.devices = visible_devices(w.setup.devices);
  if (w.setup.devices == 0) return kErrorNoDevice;
  w.initialised = true;
  return kSuccess;
}

Result cuDriverGetVersion(int* version) {
  *version = world().setup.version;
  return kSuccess;
}

Result cuGetErrorName(Result error, const char** name) {
  static const std::map<Result, const char*> kNames = {
      {0, "CUDA_SUCCESS"},
      {1, "CUDA_ERROR_INVALID_VALUE"},
      {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {3, "CUDA_ERROR_NOT_INITIALIZED"},
      {4, "CUDA_ERROR_DEINITIALIZED"},
      {100, "CUDA_ERROR_NO_DEVICE"},
      {101, "CUDA_ERROR_INVALID_DEVICE"},
      {201, "CUDA_ERROR_INVALID_CONTEXT"},
      {400, "CUDA_ERROR_INVALID_HANDLE"},
      {600, "CUDA_ERROR_NOT_READY"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {719, "CUDA_ERROR_LAUNCH_FAILED"},
      {801, "CUDA_ERROR_NOT_SUPPORTED"},
      {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
      {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
      {907, "CUDA_ERROR_CAPTURED_EVENT"},
      {999, "CUDA_ERROR_UNKNOWN"}};
  const auto it = kNames.find(error);
  *name = it == kNames.end() ? nullptr : it->second;
  return it == kNames.end() ? kErrorInvalidValue : kSuccess;
}

Result cuGetErrorString(Result error, const char** text) {
  static const std::map<Result, const char*> kTexts = {
      {1, "invalid argument"},
      {2, "out of memory"},
      {3, "initialization error"},
      {100, "no CUDA-capable device is detected"},
      {201, "invalid device context"},
      {400, "invalid resource handle"},
      {600, "device not ready"},
      {700, "an illegal memory access was encountered"},
      {719, "unspecified launch failure"},
      {900, "operation not permitted when stream is capturing"},
      {999, "unknown error"}};
  const auto it = kTexts.find(error);
  *text = it == kTexts.end() ? nullptr : it->second;
  return it == kTexts.end() ? kErrorInvalidValue : kSuccess;
}

// --- Devices.

Result cuDeviceGetCount(int* count) {
  STAND_IN_ENTER("cuDeviceGetCount", false);
  *count = w.setup.devices;
  return kSuccess;
}

Result cuDeviceGet(DeviceId* device, int ordinal) {
  STAND_IN_ENTER("cuDeviceGet", false);
  if (ordinal < 0 || ordinal >= w.setup.devices)
    return w.fault(kErrorInvalidDevice, "cuDeviceGet: no such device");
  *device = ordinal;
  return kSuccess;
}

Result cuDeviceGetName(char* name, int size, DeviceId device) {
  STAND_IN_ENTER("cuDeviceGetName", false);
  std::strncpy(name, fmt::format("Tenon stand-in {}", device).c_str(),
               static_cast<std::size_t>(size) - 1);
  return kSuccess;
}

Result cuDeviceGetAttribute(int* value, int attribute, DeviceId) {
  STAND_IN_ENTER("cuDeviceGetAttribute", false);
  switch (attribute) {
    case kAttributeVirtualMemory:
    case kAttributeExportsFileDescriptors:
      *value = w.setup.virtual_memory ? 1 : 0;
      break;
    case kAttributeRdmaWithVirtualMemory:
      *value = w.setup.virtual_memory && w.setup.rdma ? 1 : 0;
      break;
    case kAttributeComputeMajor:
      *value = 9;
      break;
    case kAttributeUnifiedAddressing:
    case kAttributeManagedMemory:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return kSuccess;
}

Result cuDeviceTotalMem_v2(std::size_t* bytes, DeviceId) {
  STAND_IN_ENTER("cuDeviceTotalMem_v2", false);
  *bytes = w.setup.capacity;
  return kSuccess;
}

Result cuDeviceCanAccessPeer(int* can, DeviceId device, DeviceId peer) {
  STAND_IN_ENTER("cuDeviceCanAccessPeer", false);
  *can = w.setup.peers && device != peer ? 1 : 0;
  return kSuccess;
}

// --- Contexts.

Result cuDevicePrimaryCtxRetain(Context* context, DeviceId device) {
  STAND_IN_ENTER("cuDevicePrimaryCtxRetain", false);
  ContextState& state = w.contexts.at(static_cast<std::size_t>(device));
  ++state.retained;
  *context = reinterpret_cast<Context>(&state);
  return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(DeviceId device) {
  STAND_IN_ENTER("cuDevicePrimaryCtxRelease_v2", false);
  ContextState& state = w.contexts.at(static_cast<std::size_t>(device));
  if (state.retained == 0)
    return w.fault(kErrorInvalidContext, "cuDevicePrimaryCtxRelease: it is not retained");
  --state.retained;
  return kSuccess;
}

Result cuDevicePrimaryCtxGetState(DeviceId device, unsigned* flags, int* active) {
  STAND_IN_ENTER("cuDevicePrimaryCtxGetState", false);
  *flags = 0;
  *active = w.contexts.at(static_cast<std::size_t>(device)).retained > 0 ? 1 : 0;
  return kSuccess;
}

Result cuCtxGetCurrent(Context* context) {
  STAND_IN_COUNT("cuCtxGetCurrent");
  *context = reinterpret_cast<Context>(current_context());
  return kSuccess;
}

Result cuCtxPushCurrent_v2(Context context) {
  STAND_IN_COUNT("cuCtxPushCurrent_v2");
  auto* state = reinterpret_cast<ContextState*>(context);
  if (state == nullptr || state->retained == 0)
    return w.fault(kErrorInvalidContext, "cuCtxPushCurrent: no such context");
  context_stack().push_back(state);
  return kSuccess;
}

Result cuCtxPopCurrent_v2(Context* context) {
  STAND_IN_COUNT("cuCtxPopCurrent_v2");
  if (context_stack().empty())
    return w.fault(kErrorInvalidContext, "cuCtxPopCurrent: there is none");
  *context = reinterpret_cast<Context>(context_stack().back());
  context_stack().pop_back();
  return kSuccess;
}

Result cuCtxGetDevice(DeviceId* device) {
  STAND_IN_ENTER("cuCtxGetDevice");
  *device = current_context()->device;
  return kSuccess;
}

Result cuCtxSynchronize() {
  STAND_IN_ENTER("cuCtxSynchronize");
  if (const Result bad = w.forbid_with_any_capture("cuCtxSynchronize"); bad != kSuccess)
    return bad;
  w.run_everything(current_context()->device);
  return w.lost;
}

Result cuCtxEnablePeerAccess(Context peer, unsigned flags) {
  STAND_IN_ENTER("cuCtxEnablePeerAccess");
  auto* other = reinterpret_cast<ContextState*>(peer);
  if (flags != 0 || other == current_context() || !w.setup.peers)
    return w.fault(kErrorInvalidValue, "cuCtxEnablePeerAccess: no such peer");
  return current_context()->peers.insert(other->device).second ? kSuccess
                                                               : kErrorPeerAccessAlreadyEnabled;
}

// --- Modules: the text's entries, of which those are runnable that are built in.

Result cuModuleLoadData(Module* module, const void* image) {
  STAND_IN_ENTER("cuModuleLoadData");
  if (const Result bad = w.forbid_while_capturing("cuModuleLoadData"); bad != kSuccess) return bad;
  const std::string text = static_cast<const char*>(image);
  if (text.find(".version") == std::string::npos || text.find(".target") == std::string::npos)
    return w.fault(kErrorInvalidImage, "cuModuleLoadData: no PTX");
  auto* made = new std::string(text);
  w.modules.insert(made);
  *module = reinterpret_cast<Module>(made);
  return kSuccess;
}

Result cuModuleUnload(Module module) {
  STAND_IN_ENTER("cuModuleUnload");
  auto* text = reinterpret_cast<std::string*>(module);
  if (w.modules.erase(text) == 0)
    return w.fault(kErrorInvalidHandle, "cuModuleUnload: no such module");
  delete text;
  return kSuccess;
}

Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  STAND_IN_ENTER("cuModuleGetFunction");
  const auto* text = reinterpret_cast<const std::string*>(module);
  if (text->find(fmt::format(".entry {}(", name)) == std::string::npos) return kErrorNotFound;
  w.functions.push_back(std::make_unique<std::string>(name));
  *function = reinterpret_cast<Function>(w.functions.back().get());
  return kSuccess;
}

Result cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                      Stream stream, void** params, void** extra) {
  STAND_IN_ENTER("cuLaunchKernel");
  StreamState* on = w.stream_of(stream);
  if (on == nullptr || on->device != current_context()->device)
    return w.fault(kErrorInvalidHandle, "cuLaunchKernel: no stream of this context");
  if (const Result bad = w.forbid_implicit_capture(on, "cuLaunchKernel"); bad != kSuccess)
    return bad;
  const std::uint64_t threads = std::uint64_t{block_x} * block_y * block_z;
  if (grid_x * grid_y * grid_z == 0 || threads == 0 || threads > 1024 || extra != nullptr)
    return w.fault(kErrorInvalidValue, "cuLaunchKernel: sizes");
  const std::string& name = *reinterpret_cast<std::string*>(function);
  return enqueue_kernel(name, on, params)
             ? w.lost
             : w.fault(kErrorNotSupported, "cuLaunchKernel: " + name + " is not built in");
}

}  // extern "C"
