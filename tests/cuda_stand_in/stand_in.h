// Controls of the stand-in driver. Tests find them by dlsym in the library that they load.
#pragma once

#include <cstdint>

extern "C" {

// Forgets everything and starts anew as a freshly installed machine; `setup` as in README.md.
// Requires: nobody uses what was handed out before.
void stand_in_reset(const char* setup);

// The n-th call of the function from now (1 is the next) fails with `result` and does nothing.
void stand_in_fail(const char* function, std::uint64_t nth, int result);
// The n-th call from now, whichever it is, fails so; 0 takes that back.
void stand_in_fail_any(std::uint64_t nth, int result);
std::uint64_t stand_in_all_calls();  // made since the reset
// The process's end as the driver sees it: all calls fail with CUDA_ERROR_DEINITIALIZED.
void stand_in_end();
// After that many more calls the device is lost: all calls fail with CUDA_ERROR_LAUNCH_FAILED.
void stand_in_lose_device(std::uint64_t calls);
// What other processes hold of a device's memory.
void stand_in_take(int device, std::uint64_t bytes);

std::uint64_t stand_in_used(int device);           // physical bytes in use
std::uint64_t stand_in_calls(const char* function);  // made since the reset
std::uint64_t stand_in_rdma_bytes();  // created with gpuDirectRDMACapable since the reset
std::uint64_t stand_in_pinned();                   // bytes of pinned host memory
// Queued work that has not run yet, over all streams.
std::uint64_t stand_in_pending();

// Misuse so far, one line each; "" when there was none. Valid until the next call of it.
const char* stand_in_faults();
// What has not been given back, one line each.
const char* stand_in_leaks();

}  // extern "C"
