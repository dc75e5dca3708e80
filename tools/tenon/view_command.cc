// tenon view: a trace as a web page.
#include <fmt/format.h>

#include <memory>

#include "arguments.h"
#include "commands.h"
#include "tenon/base/error.h"
#include "tenon/lab/view/page.h"
#include "tenon/trace/file_bytes.h"
#include "view_input.h"
#include "viewer_page.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
The page is one file with data, script and style; it needs only a browser. It shows memory over
time, stacked by allocation, with zoom, search by call site and each block's stack. It also shows
the address map at any moment, the memory that each policy reserves, and the recorded events.

Examples:
  tenon view snapshot.pickle                       writes snapshot.html
  tenon view run.csv.zst -o run.html --policy all
  tenon view run.pickle --capacity 24GiB           ... and which policies would have failed
  tenon view run.pickle --json                     the figures that the page shows, no page
For traces of many millions of events see tenon serve.

Exit status: 0 when the page is written. 1 for a bug or a page that cannot be written. 2 for bad
usage or a file that cannot be read.)";

struct ViewArguments {
  ViewInput input;
  std::string out;
  bool json = false;
};

int run_view(ViewArguments& arguments) {
  const bool writes_page = !arguments.json || !arguments.out.empty();
  const std::string& file = arguments.input.file;
  const std::string out =
      writes_page ? page_file(arguments.out, trace_name(file) + ".html", {file}) : "";
  const ViewData data = read_view(arguments.input, ColumnsAt::kPage);
  if (arguments.json) fmt::print("{}", data.figures);
  if (!writes_page) return kSuccess;
  const std::string page = make_page(viewer_page(), data);
  write_file(out, page);
  if (!arguments.json) fmt::print("{}\n", out);
  return kSuccess;
}

}  // namespace

Subcommand add_view(CommandLine& app) {
  const auto arguments = std::make_shared<ViewArguments>();
  CommandLine& view = app.add_subcommand("view", "Show a recorded trace as a web page");
  view.footer(kHelp);
  add_view_input(view, arguments->input);
  view.add_option("-o,--output", arguments->out,
                  "The page (default: the trace's name with .html, in this folder)");
  view.add_flag("--json", arguments->json,
                "Print the figures as JSON; write a page only with -o");
  return {&view, [arguments] { return run_view(*arguments); }};
}

}  // namespace tenon::command
