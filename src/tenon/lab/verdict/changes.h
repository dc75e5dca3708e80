// Changes to a program that would save memory, each measured.
#pragma once

#include <vector>

#include "tenon/lab/verdict/verdict.h"

namespace tenon {

// The changes that save at least 2 % of the peak, most first, at most four. `failure`: null when no
// allocation failed; otherwise the events before it and its request count.
std::vector<Change> find_changes(const VerdictInput& input, const OutOfMemoryReport* failure);

}  // namespace tenon
