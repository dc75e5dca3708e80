// tenon serve: a trace as a web page, by a server on this machine.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "commands.h"
#include "http_server.h"
#include "tenon/lab/view/page.h"
#include "view_input.h"
#include "viewer_page.h"

namespace tenon::command {
namespace {

constexpr const char* kHelp = R"(
Serves the page of tenon view. The page loads the data in pieces when it needs them, for traces that
are too large for one file. The server listens on 127.0.0.1: only this machine can connect, and
every account on it can. Ctrl-C ends the server.

Example:
  tenon serve huge.pickle                   prints the address to open

Exit status: 0 after Ctrl-C. 1 for a port that is taken, or a bug. 2 for bad usage or a file that
cannot be read.)";

struct ServeArguments {
  ViewInput input;
  std::uint16_t port = 0;
};

// Ctrl-C and `kill` as something to wait for. A handler, not a mask: libraries have threads of
// their own, which a mask set here would not reach.
class StopSignal {
 public:
  StopSignal() {
    if (::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0)
      throw std::runtime_error(fmt::format("pipe2 failed: {}", std::strerror(errno)));
    struct sigaction action {};
    action.sa_handler = [](int) {
      const int before = errno;
      [[maybe_unused]] const ssize_t written = ::write(ends_[1], "x", 1);
      errno = before;
    };
    for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  }
  ~StopSignal() {
    for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  int file() const { return ends_[0]; }

 private:
  static inline int ends_[2] = {-1, -1};
};

// The page, and each piece of a column under columns/NAME/NUMBER.
class Site {
 public:
  Site(const ViewData& data, std::string page) : page_(std::move(page)) {
    for (const Column& column : data.columns) columns_[column.name] = &column;
  }

  HttpAnswer operator()(std::string_view path) const {
    constexpr std::string_view kColumns = "/columns/";
    if (path == "/") return {200, "text/html; charset=utf-8", page_};
    if (path.starts_with(kColumns)) {
      path.remove_prefix(kColumns.size());
      const std::size_t slash = path.find('/');
      const auto column = columns_.find(path.substr(0, slash));
      if (slash != path.npos && column != columns_.end()) {
        const std::string_view number = path.substr(slash + 1);
        std::size_t piece = 0;
        const auto end = number.data() + number.size();
        const auto read = std::from_chars(number.data(), end, piece);
        if (read.ec == std::errc() && read.ptr == end && piece < column->second->pieces.size())
          return {200, "application/octet-stream", column->second->pieces[piece]};
      }
    }
    return {404, "text/plain; charset=utf-8", "there is no such page\n"};
  }

 private:
  const std::string page_;
  std::map<std::string_view, const Column*> columns_;
};

int run_serve(const ServeArguments& arguments) {
  const ViewData data = read_view(arguments.input, ColumnsAt::kServer);
  const Site site(data, make_page(viewer_page(), data));
  const StopSignal stop;
  HttpServer server(arguments.port, site);
  fmt::print("http://127.0.0.1:{}/ shows {}; Ctrl-C ends it\n", server.port(), data.name);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)  // the address would be lost
    throw std::system_error(errno, std::generic_category());
  server.run(stop.file());
  return kSuccess;
}

}  // namespace

Subcommand add_serve(CommandLine& app) {
  const auto arguments = std::make_shared<ServeArguments>();
  CommandLine& serve =
      app.add_subcommand("serve", "Show a recorded trace in the browser, however large");
  serve.footer(kHelp);
  add_view_input(serve, arguments->input);
  serve.add_option("--port", arguments->port, "0: any free port").show_default();
  return {&serve, [arguments] { return run_serve(*arguments); }};
}

}  // namespace tenon::command
