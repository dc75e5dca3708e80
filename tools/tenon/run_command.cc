#include "run_command.h"

namespace tenon::command {

int run_named(CommandLine& app, const std::vector<Subcommand>& subcommands, int argc, char** argv) {
  const CommandLine::Parsed parsed = app.parse(argc, argv);
  if (!parsed.runs) return parsed.exit_status;
  for (const Subcommand& subcommand : subcommands)
    if (subcommand.line->was_named()) return subcommand.run();
  return kBadInput;
}

}  // namespace tenon::command
