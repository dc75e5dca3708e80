// What `tenon view` and `tenon serve` have in common: a trace, and the policies to compare.
#pragma once

#include <string>
#include <vector>

#include "command_line.h"
#include "tenon/lab/view/view_data.h"

namespace tenon::command {

struct ViewInput {
  std::string file;
  std::vector<std::string> policies = {"caching,expandable,stitched,plan"};
  std::string capacity;
  std::string lag = "5ms";
  std::string conf;
  int device = -1;  // -1: the one with the highest live peak
};

void add_view_input(CommandLine& app, ViewInput& input);

// Reads the trace and replays it. Warnings go to stderr. Throws ParseError and InvalidArgument.
ViewData read_view(const ViewInput& input, ColumnsAt columns_at);

}  // namespace tenon::command
