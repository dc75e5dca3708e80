// What the command's two programs have in common.
#pragma once

#include <functional>
#include <vector>

#include "commands.h"

namespace tenon::command {

// Parses the arguments and runs the subcommand that they name. Returns the exit status.
int run_named(CommandLine& app, const std::vector<Subcommand>& subcommands, int argc, char** argv);

// Runs main's body; an exception becomes one line on standard error and an exit status.
int run_reporting_errors(const std::function<int()>& body);

}  // namespace tenon::command
