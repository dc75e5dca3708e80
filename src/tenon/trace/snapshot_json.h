// PyTorch's memory snapshots that a program wrote as JSON: json.dump(torch.cuda.memory._snapshot(),
// file). Thread-safe: pure functions of their arguments.
#pragma once

#include <string>
#include <string_view>

#include "tenon/trace/snapshot.h"

namespace tenon {

// The same values as a pickle, for parse_snapshot. O(bytes), and about as much memory. Throws
// ParseError with line and column for what is no JSON.
std::string pickle_of_json(std::string_view bytes, const std::string& path,
                           const ReadHooks& hooks = {});

}  // namespace tenon
