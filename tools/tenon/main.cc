// The command `tenon` and its subcommands.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
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
      "  tenon replay snapshot.pickle                 what would every allocator have needed?\n"
      "  tenon replay *.csv.zst --find-capacity       ... and the smallest device for each?\n"
      "  tenon replay run.pickle --capacity 24GiB     would it have fitted into 24 GiB?\n"
      "\"tenon replay --help\" says what the figures mean.");
  const std::vector<command::Subcommand> subcommands = {
      command::add_replay(app), command::add_policies(app), command::add_info(app),
      command::add_vectors(app), command::add_plan(app), command::add_validate(app),
      command::add_advise(app)};
  const auto is_named = [&](const command::Subcommand& subcommand) {
    return subcommand.app->get_name() == argv[1];
  };
  if (argc > 1 && argv[1][0] != '-' &&
      std::none_of(subcommands.begin(), subcommands.end(), is_named)) {
    std::string known;
    for (const command::Subcommand& subcommand : subcommands)
      known += (known.empty() ? "" : ", ") + subcommand.app->get_name();
    fmt::print(stderr, "tenon: \"{}\" is no subcommand: there are {}\n", argv[1], known);
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
