// Files of other tools about memory that hold no events of blocks, so no trace can be made of them.
#pragma once

#include <string>
#include <string_view>

namespace tenon {

// What the file is, what it lacks, and what to bring instead, for the reason of a ParseError. Empty
// for any other file. The content decides; for Nsight Systems' reports the name does. Thread-safe.
// O(bytes).
std::string foreign_format(std::string_view bytes, std::string_view path);

// The same for a JSON object by one of its keys.
std::string foreign_json(std::string_view key);

}  // namespace tenon
