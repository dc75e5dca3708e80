#include "run_command.h"

#include <fmt/format.h>

#include <csignal>
#include <exception>

#include "tenon/base/error.h"

namespace tenon::command {

int run_named(CommandLine& app, const std::vector<Subcommand>& subcommands, int argc, char** argv) {
  const CommandLine::Parsed parsed = app.parse(argc, argv);
  if (!parsed.runs) return parsed.exit_status;
  for (const Subcommand& subcommand : subcommands)
    if (subcommand.line->was_named()) return subcommand.run();
  return kBadInput;
}

int run_reporting_errors(const std::function<int()>& body) {
  // A limit on file sizes is met like a full disk: by an error, and the earlier file stays.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return body();
  } catch (const ParseError& error) {
    fmt::print(stderr, "tenon: {}\n", error.what());
    return kBadInput;
  } catch (const InvalidArgument& error) {
    fmt::print(stderr, "tenon: {}\n", error.what());
    return kBadInput;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tenon: {}\n", error.what());
    return kFailure;
  }
}

}  // namespace tenon::command
