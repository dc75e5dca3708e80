// Logs of RMM, the RAPIDS memory manager. Thread-safe: pure functions. O(bytes).
#pragma once

#include <string>
#include <string_view>

#include "tenon/trace/trace.h"

namespace tenon {

inline constexpr std::string_view kRmmHeader = "Thread,Time,Action,Pointer,Size,Stream";

// True when the header line is that of RMM's logging_resource_adaptor.
bool looks_like_rmm_csv(std::string_view bytes);

// Columns Thread, Time, Action, Pointer, Size, Stream. Times of day like 16:22:05:123456 or
// 16:22:05.123456 (past midnight the next day goes on). Actions "allocate", "free" and "allocate
// failure", which becomes an out-of-memory mark. Pointers and streams in hexadecimal, with or
// without 0x. A pointer that is freed and was never allocated was there from the start; one that is
// allocated while in use was freed unseen. Lines with other actions are marks. Throws ParseError
// with line and column for lines that cannot be read.
Trace parse_rmm_csv(std::string_view bytes, const std::string& path);

}  // namespace tenon
