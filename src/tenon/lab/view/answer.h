// The verdict, as the viewer shows it. Thread-safe: pure functions of their arguments. The only
// error is lack of memory (std::bad_alloc). O(blocks).
#pragma once

#include "tenon/lab/explain/explain.h"
#include "tenon/lab/view/view_data.h"

namespace tenon {

// What is known beyond the trace of `facts`: sentences, changes, and the category of each block.
// `device`: its explanation.
ViewAnswer view_answer(const TraceFacts& facts, const DeviceExplanation& device);

}  // namespace tenon
