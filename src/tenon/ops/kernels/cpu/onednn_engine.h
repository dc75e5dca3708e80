// What all uses of oneDNN share.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace tenon::ops::cpu {

dnnl::engine& cpu_engine();

// To be called before a primitive is made: oneDNN 2.6 ends the process with SIGSEGV where the
// system refuses the memory for its code. Throws OutOfMemory unless as much can be mapped.
void require_memory_for_code();

}  // namespace tenon::ops::cpu
