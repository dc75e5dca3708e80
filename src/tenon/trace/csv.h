// Traces as comma-separated values. Thread-safe while no two threads write one path.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// The first line names the columns, in any order: time_us, op (alloc, free_requested,
// free_completed), id, size, stream. Sizes and streams of frees are those of the block. A size of 0
// is a valid request. Further columns: thread (a number or a name), device ("0", "sim:1"; each has
// ids of its own and becomes a trace), tag (any text without commas). Others are ignored. Memory
// that falls asleep or wakes has the ops sleep_to_host, sleep_dropped and wake: marks. Then
// id is its address, size the bytes that left the device or came back, tag the tag that sleeps.
//
// Throws ParseError with line and column (in bytes, from 1) for missing or repeated columns, and a
// line with too few or too many fields. Also for an unknown op, and numbers that are malformed,
// negative or too large. Also for an id allocated while it is live, and frees of ids that are
// unknown or free already. Times that run backwards are a warning. One pass, O(bytes).
std::vector<Trace> parse_csv_devices(std::string_view bytes, const std::string& path);
// The same of a file with one device.
Trace parse_csv(std::string_view bytes, const std::string& path);

// Whole traces in that format. Block numbers become the ids. The further columns are written where
// something is in them. Commas in tags become semicolons.
std::string format_csv(std::span<const Trace> traces);
std::string format_csv(const Trace& trace);

// Writes ".csv" or ".csv.zst". Throws std::runtime_error when the file cannot be written.
void write_csv(const Trace& trace, const std::string& path);

}  // namespace tenon
