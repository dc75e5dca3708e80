// A loader of Vulkan that passes every call to the real one, except those that it is told to fail.
#pragma once

#include <cstdint>

extern "C" {

// The nth call from now on (the next one is 1) that returns a result returns `result` and does
// nothing; 0: none. Where `result` says that the device is lost, all later calls that may say so
// do too.
void failing_loader_fail(std::uint64_t nth, int result);
// Such calls since then.
std::uint64_t failing_loader_calls();
// The function that failed; null: none did.
const char* failing_loader_failed();

}  // extern "C"
