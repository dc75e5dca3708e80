#include "tenon/device/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <exception>
#include <string_view>

#include "tenon/base/environment.h"
#include "tenon/base/printable.h"
#include "tenon/device/os/forks.h"

namespace tenon {
namespace {

const char* known_name(cu::Result result) {
  return result == cu::kErrorStubLibrary ? "CUDA_ERROR_STUB_LIBRARY" : "an error without a name";
}

}  // namespace

bool CudaError::is_device_lost(cu::Result code) {
  switch (code) {
    case cu::kErrorDeinitialized:
    case cu::kErrorDeviceUnavailable:
    case cu::kErrorEccUncorrectable:
    case cu::kErrorNvlinkUncorrectable:
    case cu::kErrorContained:
    case cu::kErrorIllegalAddress:
    case cu::kErrorLaunchTimeout:
    case cu::kErrorContextIsDestroyed:
    case cu::kErrorAssert:
    case cu::kErrorHardwareStack:
    case cu::kErrorIllegalInstruction:
    case cu::kErrorMisalignedAddress:
    case cu::kErrorInvalidAddressSpace:
    case cu::kErrorInvalidPc:
    case cu::kErrorLaunchFailed:
      return true;
    default:
      return false;
  }
}

std::shared_ptr<const CudaDriver> CudaDriver::open(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    raise<DeviceError>(
        "no NVIDIA driver: {}; install it, make the container see it (nvidia-container-toolkit), "
        "or correct TENON_CUDA_DRIVER if it is set", one_line(::dlerror()));
  // Never closed: a driver has threads of its own.
  const std::shared_ptr<CudaDriver> driver(new CudaDriver());
  driver->library_ = library;
  driver->look_up(handle);
  driver->forks_ = os::count_forks();
  driver->start();
  return driver;
}

void CudaDriver::look_up(void* handle) {
  // The version first: for an old driver the message is its version, not a missing function.
  using GetVersion = cu::Result (*)(int*);
  if (const auto get_version =
          reinterpret_cast<GetVersion>(::dlsym(handle, "cuDriverGetVersion")))
    get_version(&version_);
  const auto too_old = [&](const std::string& reason) {
    return DeviceError(fmt::format("the NVIDIA driver {} is too old: {}; Tenon needs CUDA {}.{} or "
                                   "later (driver 470): update it",
                                   library_, reason, kLeastVersion / 1000,
                                   kLeastVersion % 1000 / 10));
  };
  if (version_ != 0 && version_ < kLeastVersion)
    throw too_old(fmt::format("it is for CUDA {}", version_text()));
  const auto find = [&](const char* symbol) {
    void* address = ::dlsym(handle, symbol);
    if (address == nullptr) throw too_old(fmt::format("it has no {}", symbol));
    return address;
  };
#define TENON_CUDA_LOOK_UP(member, symbol, ...)                                       \
  member.pointer = reinterpret_cast<decltype(member.pointer)>(find(symbol));          \
  member.name = symbol;
  TENON_CUDA_FUNCTIONS(TENON_CUDA_LOOK_UP)
#undef TENON_CUDA_LOOK_UP
#define TENON_CUDA_LOOK_UP(member, symbol, ...)                                               \
  member.pointer = reinterpret_cast<decltype(member.pointer)>(::dlsym(handle, symbol)); \
  member.name = symbol;
  TENON_CUDA_LATER_FUNCTIONS(TENON_CUDA_LOOK_UP)
#undef TENON_CUDA_LOOK_UP
}

void CudaDriver::start() {
  call(init, 0u);
  call(driver_get_version, &version_);
  call(device_get_count, &device_count_);
  if (device_count_ == 0)
    throw CudaError(fmt::format("the NVIDIA driver {} (CUDA {}) finds no device; look at "
                                "nvidia-smi, and at CUDA_VISIBLE_DEVICES if it is set",
                                library_, version_text()),
                    cu::kErrorNoDevice);
}

std::shared_ptr<const CudaDriver> CudaDriver::standard() {
  struct Opened {
    std::shared_ptr<const CudaDriver> driver;
    std::exception_ptr failure;
  };
  static const Opened* const opened = [] {
    auto* result = new Opened();  // never destroyed: backends may outlive static objects
    const std::string_view chosen = environment_value("TENON_CUDA_DRIVER");
    try {
      result->driver = open(chosen.empty() ? "libcuda.so.1" : std::string(chosen));
    } catch (...) {
      result->failure = std::current_exception();
    }
    return result;
  }();
  if (opened->failure) std::rethrow_exception(opened->failure);
  return opened->driver;
}

std::string CudaDriver::version_text() const {
  return fmt::format("{}.{}", version_ / 1000, version_ % 1000 / 10);
}

bool CudaDriver::is_same_process() const {
  return os::count_forks() == forks_;
}

void CudaDriver::require_same_process() const {
  if (is_same_process()) [[likely]] return;
  throw DeviceError(
      "CUDA was initialised before this process was forked, and cannot be used in a forked child: "
      "start children with spawn (multiprocessing.set_start_method(\"spawn\")), or initialise CUDA "
      "after forking");
}

std::string CudaDriver::describe_call(const char* name,
                                      std::initializer_list<CallArgument> arguments) {
  std::string text;
  for (const auto& [kind, value] : arguments) {
    if (!text.empty()) text += ", ";
    const bool is_place =  // addresses are large, sizes are not
        kind == CallArgument::Kind::kPointer ||
        (kind == CallArgument::Kind::kAddress && value >> 40 != 0);
    if (kind == CallArgument::Kind::kOther)
      text += "...";
    else if (is_place)
      text += fmt::format("{:#x}", value);
    else if (kind == CallArgument::Kind::kSigned)
      text += fmt::format("{}", static_cast<std::int64_t>(value));
    else
      text += fmt::format("{}", value);
  }
  return fmt::format("{}({})", name, text);
}

void CudaDriver::fail(cu::Result result, const std::string& call) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name.pointer != nullptr) get_error_name(result, &name);
  if (get_error_string.pointer != nullptr) get_error_string(result, &text);
  std::string message = fmt::format("{}: {} ({}): {}", call,
                                    name != nullptr ? name : known_name(result), result,
                                    text != nullptr ? text : "the driver says no more");
  if (result == cu::kErrorNoDevice)
    message += "; look at nvidia-smi, and at CUDA_VISIBLE_DEVICES if it is set";
  if (result == cu::kErrorStubLibrary)
    message += fmt::format("; {} is the toolkit's stub for linking, not a driver", library_);
  if (CudaError::is_device_lost(result))
    message += "; the device is lost to this process: end it and start again";
  throw CudaError(message, result);
}

}  // namespace tenon
