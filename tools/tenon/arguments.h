// Arguments as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/error.h"

namespace tenon {
struct Trace;
}

namespace tenon::command {

// What `read` returns. An InvalidArgument that it throws gets the option in front, "--conf: ...".
template <typename Read>
auto read_option(std::string_view option, Read&& read) {
  try {
    return read();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(std::string(option) + ": " + error.what());
  }
}

// "24GiB", "1.5 GB", "4096 B": a size as the value of `option`. Throws InvalidArgument naming the
// option for a number without a unit, for 0, and for what is no size.
std::uint64_t parse_size(std::string_view option, const std::string& text);

// The capacity of a planning problem: as above, or a whole number in the problem's own unit.
std::uint64_t parse_problem_size(std::string_view option, const std::string& text);

// Throws InvalidArgument where `output` is the same file as one of `inputs`, by whatever name.
void require_other_file(const std::string& output, const std::vector<std::string>& inputs);

// The same for a page or an answer that is written, whose name also must not end as recordings do:
// one of a list of files may have slipped behind the option.
void require_answer_file(const std::string& output, const std::vector<std::string>& inputs);

// The name of a page: `given`, or the standard one where that is empty, checked as above. Throws
// InvalidArgument where a file has the standard name that is no page of tenon.
std::string page_file(const std::string& given, const std::string& standard,
                      const std::vector<std::string>& inputs);

// What stands for "no device was asked for".
inline constexpr std::int64_t kAnyDevice = -1;

// The trace of the device with this number, as tenon explain prints it; the first one where none
// was asked for. Throws InvalidArgument naming the devices that `file` has events of.
const Trace& trace_of_device(const std::vector<Trace>& traces, std::int64_t device,
                             const std::string& file);

// "5ms", "20 ms", "500us", "1.5s", "100ns", "0", as the value of `option`. Throws InvalidArgument
// naming it for anything else, and for more than an hour.
std::uint64_t parse_duration_ns(std::string_view option, std::string_view text);

// "caching,null" -> {"caching", "null"}, "all" -> every policy. Each once, in the order given.
// Throws InvalidArgument naming --policy and the known policies.
std::vector<std::string> parse_policies(const std::vector<std::string>& lists);

}  // namespace tenon::command
