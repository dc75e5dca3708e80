// What the command's two programs have in common.
#pragma once

#include <vector>

#include "commands.h"

namespace tenon::command {

// Parses the arguments and runs the subcommand that they name. Returns the exit status.
int run_named(CommandLine& app, const std::vector<Subcommand>& subcommands, int argc, char** argv);

}  // namespace tenon::command
