// Arguments as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::command {

// "5ms", "20 ms", "500us", "1.5s", "100ns", "0". Throws InvalidArgument for anything else, and for
// more than an hour.
std::uint64_t parse_duration_ns(std::string_view text);

// "caching,null" -> {"caching", "null"}, "all" -> every policy. Each once, in the order given.
// Throws InvalidArgument, listing the known policies.
std::vector<std::string> parse_policies(const std::vector<std::string>& lists);

}  // namespace tenon::command
