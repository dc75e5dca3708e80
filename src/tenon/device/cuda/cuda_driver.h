// NVIDIA's driver, loaded at run time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>

#include "tenon/base/error.h"
#include "tenon/device/cuda/driver_api.h"

namespace tenon {

// A driver call that failed, as "cuMemMap(0x7f.., 2097152, 0, 3, 0): CUDA_ERROR_... (1): text".
class CudaError : public DeviceError {
 public:
  CudaError(const std::string& message, cu::Result code) : DeviceError(message), code_(code) {}

  cu::Result code() const { return code_; }
  // The device or its context is gone: every later call of this process fails as well.
  bool is_device_lost() const { return is_device_lost(code_); }
  static bool is_device_lost(cu::Result code);

 private:
  cu::Result code_;
};

// A wait that a graph capture in progress forbids: the driver would end the capture.
class CaptureRefusal : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

// The driver's functions. Immutable after open(), and so thread-safe; a forked child must not use
// the one that its parent opened (require_same_process).
class CudaDriver : public cu::Functions {
 public:
  // The oldest driver that has every function that is called: CUDA 11.4 (driver 470).
  static constexpr int kLeastVersion = 11040;

  // Loads the library, looks all functions up and initialises the driver. Throws DeviceError,
  // saying what to do, when there is no such library, when it is too old, when it does not start
  // (CudaError), or when it finds no device.
  static std::shared_ptr<const CudaDriver> open(const std::string& library);
  // The process's driver: the library that the environment variable TENON_CUDA_DRIVER names, else
  // libcuda.so.1. Opened once; a failure is thrown again at every call.
  static std::shared_ptr<const CudaDriver> standard();

  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  const std::string& library() const { return library_; }
  int version() const { return version_; }  // 1000 * major + 10 * minor
  std::string version_text() const;         // "13.0"
  int device_count() const { return device_count_; }

  // Throws DeviceError in a child that was forked after open().
  void require_same_process() const;
  bool is_same_process() const;

  // Calls the function; throws CudaError, with the arguments, unless it succeeds.
  template <typename... Parameters, typename... Arguments>
  void call(const cu::DriverFunction<Parameters...>& function, Arguments... arguments) const {
    const cu::Result result = function(arguments...);
    if (result != cu::kSuccess) [[unlikely]] fail(result, describe(function, arguments...));
  }
  // The same, but lack of memory is a value: false.
  template <typename... Parameters, typename... Arguments>
  bool call_for_memory(const cu::DriverFunction<Parameters...>& function,
                       Arguments... arguments) const {
    const cu::Result result = function(arguments...);
    if (result == cu::kSuccess) [[likely]] return true;
    if (result == cu::kErrorOutOfMemory) return false;
    fail(result, describe(function, arguments...));
  }
  // For what gives back: on a device that is lost there is nothing left to give back, and a free
  // must not report that.
  template <typename... Parameters, typename... Arguments>
  void call_to_give_back(const cu::DriverFunction<Parameters...>& function,
                         Arguments... arguments) const {
    const cu::Result result = function(arguments...);
    if (result != cu::kSuccess && !CudaError::is_device_lost(result)) [[unlikely]]
      fail(result, describe(function, arguments...));
  }
  [[noreturn]] void fail(cu::Result result, const std::string& call) const;

  // The call as messages show it.
  template <typename... Parameters, typename... Arguments>
  static std::string describe(const cu::DriverFunction<Parameters...>& function,
                              Arguments... arguments) {
    return describe_call(function.name, {CallArgument(arguments)...});
  }

 private:
  // Without its type, so that one function describes all calls.
  struct CallArgument {
    enum class Kind { kSigned, kUnsigned, kAddress, kPointer, kOther };

    template <typename T>
    explicit CallArgument(T argument) {
      if constexpr (std::is_pointer_v<T>) {
        kind = Kind::kPointer;
        value = reinterpret_cast<std::uintptr_t>(argument);
      } else if constexpr (std::is_integral_v<T>) {
        kind = std::is_same_v<T, cu::Address> ? Kind::kAddress
               : std::is_signed_v<T>          ? Kind::kSigned
                                              : Kind::kUnsigned;
        value = static_cast<std::uint64_t>(argument);
      }
    }

    Kind kind = Kind::kOther;
    std::uint64_t value = 0;
  };
  static std::string describe_call(const char* name,
                                   std::initializer_list<CallArgument> arguments);

  CudaDriver() = default;
  void look_up(void* handle);
  void start();

  std::string library_;
  int version_ = 0;
  int device_count_ = 0;
  unsigned forks_ = 0;  // of this process, when the driver was opened
};

}  // namespace tenon
