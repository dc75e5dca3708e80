// Profiles of torch.profiler: what export_chrome_trace writes where profile_memory=True.
// Thread-safe: pure functions of their arguments. O(bytes + events log events).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tenon/trace/snapshot.h"

namespace tenon {

// What a trace calls the memory that was allocated before the profile began and not freed in it:
// one block for all of it, since a profile has its sum alone.
inline constexpr std::string_view kUnseenBlocks = "allocated before the profile";

// Builds a trace for each GPU that has events "[memory]" in traceEvents, and where no GPU has any,
// one of host memory. An event's address names a block. A call site is the operators and lines of
// Python (with_stack=True) that were running on the event's thread. record_function's names become
// phases, "[OutOfMemory]" a mark. Of what was allocated before, PyTorch's count of allocated bytes
// tells.
//
// A profile has the sizes of PyTorch's blocks, not those asked for, and no streams; warnings say
// so.
//
// Nothing if the JSON is a memory snapshot (snapshot_json.h). Throws ParseError for other JSON, and
// for a profile without such events; it says what to record instead.
std::optional<Snapshot> parse_profile(std::string_view bytes, const std::string& path,
                                      const ReadHooks& hooks = {});

}  // namespace tenon
