// Independent pieces of work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace tenon {

// Calls work(i) once for each i below `count`, taken in order by `threads` threads (0: one for each
// core), the caller among them, and returns when all have ended. When calls throw, no further ones
// are begun, and what the one with the lowest number threw is thrown here. The threads obey the
// caller's stop request (base/interruption.h), which is looked at before each call.
void run_jobs(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace tenon
