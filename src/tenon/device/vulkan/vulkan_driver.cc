#include "tenon/device/vulkan/vulkan_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>

#include "tenon/base/byte_size.h"
#include "tenon/base/environment.h"
#include "tenon/base/printable.h"
#include "tenon/device/os/forks.h"
#include "tenon/device/vulkan/vulkan_calls.h"

namespace tenon {
namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";
constexpr std::uint32_t kVersion = VK_API_VERSION_1_2;

std::string version_text(std::uint32_t version) {
  return fmt::format("{}.{}", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
}

struct GlobalFunctions {
#define TENON_VULKAN_MEMBER(name) VulkanFunction<PFN_vk##name> name;
  TENON_VULKAN_GLOBAL_FUNCTIONS(TENON_VULKAN_MEMBER)
#undef TENON_VULKAN_MEMBER
};

// Of the loader, without an instance. Throws where it is older than Vulkan 1.1.
GlobalFunctions global_functions(PFN_vkGetInstanceProcAddr get_address) {
  GlobalFunctions found;
#define TENON_VULKAN_LOOK_UP(function)                                                   \
  found.function = {                                                                     \
      reinterpret_cast<PFN_vk##function>(get_address(nullptr, "vk" #function)),          \
      "vk" #function};                                                                   \
  if (found.function.pointer == nullptr)                                                 \
    throw DeviceError("Vulkan's loader has no vk" #function                              \
                      ": Tenon needs Vulkan 1.2 or later; update it");
  TENON_VULKAN_GLOBAL_FUNCTIONS(TENON_VULKAN_LOOK_UP)
#undef TENON_VULKAN_LOOK_UP
  return found;
}

void require_validation_layer(const GlobalFunctions& global) {
  std::uint32_t count = 0;
  call_vulkan(global.EnumerateInstanceLayerProperties, "", &count,
              static_cast<VkLayerProperties*>(nullptr));
  std::vector<VkLayerProperties> layers(count);
  call_vulkan(global.EnumerateInstanceLayerProperties, "", &count, layers.data());
  for (const VkLayerProperties& layer : layers)
    if (std::strcmp(layer.layerName, kValidationLayer) == 0) return;
  raise<DeviceError>("Vulkan has no layer {}: install it (on Debian, "
                     "vulkan-validationlayers), or leave validation out", kValidationLayer);
}

}  // namespace

std::string_view vulkan_result_name(VkResult result) {
  switch (result) {
#define TENON_VULKAN_NAME(name) \
  case name:                    \
    return #name;
    TENON_VULKAN_NAME(VK_SUCCESS)
    TENON_VULKAN_NAME(VK_NOT_READY)
    TENON_VULKAN_NAME(VK_TIMEOUT)
    TENON_VULKAN_NAME(VK_INCOMPLETE)
    TENON_VULKAN_NAME(VK_ERROR_OUT_OF_HOST_MEMORY)
    TENON_VULKAN_NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
    TENON_VULKAN_NAME(VK_ERROR_INITIALIZATION_FAILED)
    TENON_VULKAN_NAME(VK_ERROR_DEVICE_LOST)
    TENON_VULKAN_NAME(VK_ERROR_MEMORY_MAP_FAILED)
    TENON_VULKAN_NAME(VK_ERROR_LAYER_NOT_PRESENT)
    TENON_VULKAN_NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
    TENON_VULKAN_NAME(VK_ERROR_FEATURE_NOT_PRESENT)
    TENON_VULKAN_NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
    TENON_VULKAN_NAME(VK_ERROR_TOO_MANY_OBJECTS)
    TENON_VULKAN_NAME(VK_ERROR_FRAGMENTED_POOL)
    TENON_VULKAN_NAME(VK_ERROR_FRAGMENTATION)
    TENON_VULKAN_NAME(VK_ERROR_UNKNOWN)
#undef TENON_VULKAN_NAME
    default:
      return "an error without a name";
  }
}

void fail_vulkan(const char* function, std::string_view arguments, VkResult result) {
  std::string message = fmt::format("{}({}): {} ({})", function, arguments,
                                    vulkan_result_name(result), static_cast<int>(result));
  if (result == VK_ERROR_DEVICE_LOST)
    message += "; the device is lost to this process: end it and start again";
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER || result == VK_ERROR_INITIALIZATION_FAILED)
    message += "; look at vulkaninfo, and at VK_DRIVER_FILES if it is set";
  throw VulkanError(message, result);
}

bool VulkanError::is_device_lost() const { return result_ == VK_ERROR_DEVICE_LOST; }

// The callback of the validation layer.
struct VulkanDriver::Callback {
  static VkBool32 VKAPI_PTR message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                    VkDebugUtilsMessageTypeFlagsEXT,
                                    const VkDebugUtilsMessengerCallbackDataEXT* data,
                                    void* driver) {
    static_cast<const VulkanDriver*>(driver)->take_message(data->pMessage);
    return VK_FALSE;
  }
};

void VulkanDriver::take_message(const char* text) const {
  ++messages_;
  if (options_.on_message)
    options_.on_message(text);
  else
    std::fprintf(stderr, "tenon: Vulkan's validation layer: %s\n", text);
}

std::shared_ptr<const VulkanDriver> VulkanDriver::open(const VulkanDriverOptions& options) {
  return std::shared_ptr<const VulkanDriver>(new VulkanDriver(options));
}

namespace {

// Drivers do not check all their requests. lavapipe 22.3 ends the process if a limit leaves it less
// than 300 MiB of addresses, or 70 MiB of data, on two cores; it has up to 16 threads. This tests
// the limits and not the machine's free memory, since nothing is written.
void require_room_for_drivers() {
  constexpr std::size_t kBytes = kGiB;
  void* const room = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    raise<DeviceError>("Vulkan's drivers may need {}, which this process's limits do "
                       "not leave: raise them (ulimit -v, ulimit -d)", format_byte_size(kBytes));
  ::munmap(room, kBytes);
}

}  // namespace

VulkanDriver::VulkanDriver(const VulkanDriverOptions& options)
    : options_(options), functions_(std::make_unique<VulkanInstanceFunctions>()) {
  require_room_for_drivers();
  void* library = ::dlopen(options_.loader.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    raise<DeviceError>("no Vulkan loader: {}; install it (on Debian, libvulkan1) and a "
                       "driver (mesa-vulkan-drivers has one for every machine), or "
                       "correct TENON_VULKAN_LOADER if it is set", one_line(::dlerror()));
  // Never closed: drivers have threads of their own.
  get_address_ = ::dlsym(library, "vkGetInstanceProcAddr");
  if (get_address_ == nullptr)
    raise<DeviceError>("{} is no Vulkan loader: it has no vkGetInstanceProcAddr", options_.loader);
  forks_ = os::count_forks();
  create_instance();
  try {
    find_devices();
  } catch (...) {
    functions_->DestroyInstance(static_cast<VkInstance>(instance_), nullptr);
    throw;
  }
}

void VulkanDriver::create_instance() {
  const auto get_address = reinterpret_cast<PFN_vkGetInstanceProcAddr>(get_address_);
  const GlobalFunctions global = global_functions(get_address);
  std::uint32_t loader = 0;
  call_vulkan(global.EnumerateInstanceVersion, "", &loader);
  if (loader < kVersion)
    raise<DeviceError>("Vulkan's loader {} is of version {}: Tenon needs {} or later; " "update it",
                       options_.loader, version_text(loader), version_text(kVersion));
  if (options_.validate) require_validation_layer(global);

  VkApplicationInfo application = {};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.pApplicationName = "tenon";
  application.apiVersion = kVersion;
  const VkValidationFeatureEnableEXT checks[] = {
      VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
  VkValidationFeaturesEXT validation = {};
  validation.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT;
  validation.enabledValidationFeatureCount = 1;
  validation.pEnabledValidationFeatures = checks;
  VkDebugUtilsMessengerCreateInfoEXT messenger = {};
  messenger.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
  messenger.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                              VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  messenger.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  messenger.pfnUserCallback = &Callback::message;
  messenger.pUserData = this;
  const char* const extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME,
                                    VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
  VkInstanceCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  if (options_.validate) {
    info.pNext = &validation;
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &kValidationLayer;
    info.enabledExtensionCount = 2;
    info.ppEnabledExtensionNames = extensions;
  }
  VkInstance instance = nullptr;
  call_vulkan(global.CreateInstance, "", &info,
              static_cast<const VkAllocationCallbacks*>(nullptr), &instance);
  instance_ = instance;
#define TENON_VULKAN_LOOK_UP(function) \
  functions_->function = {             \
      reinterpret_cast<PFN_vk##function>(get_address(instance, "vk" #function)), "vk" #function};
  TENON_VULKAN_INSTANCE_FUNCTIONS(TENON_VULKAN_LOOK_UP)
  TENON_VULKAN_DEBUG_FUNCTIONS(TENON_VULKAN_LOOK_UP)
#undef TENON_VULKAN_LOOK_UP
  if (!options_.validate) return;
  VkDebugUtilsMessengerEXT made = VK_NULL_HANDLE;
  call_vulkan(functions_->CreateDebugUtilsMessengerEXT, "", instance, &messenger,
              static_cast<const VkAllocationCallbacks*>(nullptr), &made);
  messenger_ = reinterpret_cast<std::uint64_t>(made);
}

void VulkanDriver::find_devices() {
  const auto instance = static_cast<VkInstance>(instance_);
  std::uint32_t count = 0;
  call_vulkan(functions_->EnumeratePhysicalDevices, "", instance, &count,
              static_cast<VkPhysicalDevice*>(nullptr));
  std::vector<VkPhysicalDevice> found(count);
  if (count > 0)
    call_vulkan(functions_->EnumeratePhysicalDevices, "", instance, &count, found.data());
  devices_.assign(found.begin(), found.end());
  if (devices_.empty())
    throw DeviceError("Vulkan finds no device: install a driver (on Debian, mesa-vulkan-drivers "
                      "has one for every machine); look at vulkaninfo, and at VK_DRIVER_FILES if "
                      "it is set");
}

VulkanDriver::~VulkanDriver() {
  if (!is_same_process()) return;
  const auto instance = static_cast<VkInstance>(instance_);
  if (messenger_ != 0)
    functions_->DestroyDebugUtilsMessengerEXT(
        instance, reinterpret_cast<VkDebugUtilsMessengerEXT>(messenger_), nullptr);
  functions_->DestroyInstance(instance, nullptr);
}

std::shared_ptr<const VulkanDriver> VulkanDriver::standard() {
  struct Opened {
    std::shared_ptr<const VulkanDriver> driver;
    std::exception_ptr failure;
  };
  static const Opened* const opened = [] {
    auto* result = new Opened();  // never destroyed: backends may outlive static objects
    VulkanDriverOptions options;
    try {
      const std::string_view chosen = environment_value("TENON_VULKAN_LOADER");
      if (!chosen.empty()) options.loader = chosen;
      options.validate = environment_value("TENON_VULKAN_VALIDATION") == "1";
      result->driver = open(options);
    } catch (...) {
      result->failure = std::current_exception();
    }
    return result;
  }();
  if (opened->failure) std::rethrow_exception(opened->failure);
  return opened->driver;
}

bool VulkanDriver::is_same_process() const { return os::count_forks() == forks_; }

void VulkanDriver::require_same_process() const {
  if (is_same_process()) [[likely]] return;
  throw DeviceError(
      "Vulkan was initialised before this process was forked, and cannot be used in a forked "
      "child: start children anew, or initialise Vulkan after forking");
}

}  // namespace tenon
