// The command: `tenon replay`, `tenon explain`, `tenon view` and the rest of them.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "commands.h"
#include "tenon/base/error.h"

namespace {

using namespace tenon;

int run(int argc, char** argv) {
  CLI::App app{"Tenon shows what any memory allocator would have needed for a recorded program."};
  app.set_version_flag("--version", "tenon 0.1.0");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  tenon explain snapshot.pickle                what filled the memory, why did it fail?\n"
      "  tenon replay snapshot.pickle                 what would every allocator have needed?\n"
      "  tenon replay *.csv.zst --find-capacity       ... and the smallest device for each?\n"
      "  tenon replay run.pickle --capacity 24GiB     would it have fitted into 24 GiB?\n"
      "  tenon view run.pickle                        what was in memory, when, and from where?\n"
      "\"tenon replay --help\" says what the figures mean.");
  const std::vector<command::Subcommand> subcommands = {
      command::add_replay(app),
      command::add_explain(app),
      command::add_diff(app),
      command::add_convert(app),
      command::add_policies(app),
      command::add_info(app),
      command::add_vectors(app),
      command::add_view(app),
      command::add_serve(app),
  };
  const auto is_named = [&](const command::Subcommand& subcommand) {
    return subcommand.app->get_name() == argv[1];
  };
  std::string names;
  for (const command::Subcommand& subcommand : subcommands)
    names += (names.empty() ? "" : ", ") + subcommand.app->get_name();
  if (argc > 1 && argv[1][0] != '-' &&
      std::none_of(subcommands.begin(), subcommands.end(), is_named)) {
    fmt::print(stderr, "tenon: \"{}\" is no subcommand: there are {}\n", argv[1], names);
    return command::kBadInput;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "tenon: {}; see tenon --help\n", error.what());
    return command::kBadInput;
  }
  for (const command::Subcommand& subcommand : subcommands)
    if (subcommand.app->parsed()) return subcommand.run();
  return command::kBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const tenon::ParseError& error) {
    fmt::print(stderr, "tenon: {}\n", error.what());
    return tenon::command::kBadInput;
  } catch (const tenon::InvalidArgument& error) {
    fmt::print(stderr, "tenon: {}\n", error.what());
    return tenon::command::kBadInput;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tenon: {}\n", error.what());
    return tenon::command::kFailure;
  }
}
