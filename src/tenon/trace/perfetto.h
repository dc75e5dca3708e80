// Traces for Perfetto (ui.perfetto.dev) and chrome://tracing. Thread-safe: pure functions of their
// arguments. The only error is lack of memory (std::bad_alloc). O(events).
#pragma once

#include <span>
#include <string>

#include "tenon/trace/trace.h"

namespace tenon {

// The JSON trace event format. One process for each trace, with counters of live and reserved
// bytes, a track of phases, and instants for failures. Each block of at least a thousandth of the
// live peak is a stretch from its allocation to its free, named by call site. Open ends last to the
// end of the recording.
std::string format_perfetto(std::span<const Trace> traces);

}  // namespace tenon
