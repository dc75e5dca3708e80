// Whether this is still the process that opened a driver: a forked child must not use it.
#pragma once

namespace tenon::os {

// How often this process's line of ancestors has forked since the first call. A count, since
// comparing process ids would cost a system call each time. Thread-safe.
unsigned count_forks();

}  // namespace tenon::os
