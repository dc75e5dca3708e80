// Thread-local variables that a fast path reads.
#pragma once

// Reading one is a load at a known distance from the thread's own pointer, also in code that may
// become part of a shared library; elsewhere such code asks the loader for the address, by a call
// around which the compiler spills its registers. A library that is loaded late gets few such
// bytes (the C library keeps some 1.6 KB for all of them together), so it is for small variables.
#if defined(__GNUC__) && !defined(__APPLE__)
#define TENON_FAST_THREAD_LOCAL __attribute__((tls_model("initial-exec")))
#else
#define TENON_FAST_THREAD_LOCAL
#endif
