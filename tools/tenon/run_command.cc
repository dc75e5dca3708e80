#include "run_command.h"

#include "tenon/base/error.h"

namespace tenon::command {

int run_named(CommandLine& app, const std::vector<Subcommand>& subcommands, int argc, char** argv,
              const std::function<void(const std::string&)>& on_misuse) {
  CommandLine::Parsed parsed;
  try {
    parsed = app.parse(argc, argv);
  } catch (const InvalidArgument& error) {
    if (on_misuse) on_misuse(error.what());
    throw;
  }
  if (!parsed.runs) return parsed.exit_status;
  for (const Subcommand& subcommand : subcommands)
    if (subcommand.line->was_named()) return subcommand.run();
  return kBadInput;
}

}  // namespace tenon::command
