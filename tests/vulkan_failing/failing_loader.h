// A loader of Vulkan that passes every call to the real one, except those that it is told to fail.
// It can also make a device seem poorer than it is.
#pragma once

#include <cstdint>

// A variable of the environment, for programs that load this one: the device is lost at the first
// call after the file that it names is there.
inline constexpr const char* kLostOnceThereIs = "FAILING_LOADER_LOST_ONCE_THERE_IS";

enum class Lack : int {
  kNone,
  kVersion,    // the device is of Vulkan 1.1
  kTimelines,  // of semaphores
  kAddresses,  // of buffers
  kQueues,     // that compute
  kMemory,     // each allocation fails, as if another process had all
};

extern "C" {

// From now on, all devices lack this.
void failing_loader_pretend(Lack what);
// The nth call from now on (the next one is 1) that returns a result returns `result` and does
// nothing; 0: none. Where `result` says that the device is lost, all later calls that may say so
// do too.
void failing_loader_fail(std::uint64_t nth, int result);
// Such calls since then.
std::uint64_t failing_loader_calls();
// The function that failed; null: none did.
const char* failing_loader_failed();

}  // extern "C"
