// What the command's two programs have in common.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands.h"

namespace tenon::command {

// Parses the arguments and runs the subcommand that they name. Returns the exit status. For
// arguments that cannot be parsed it calls `on_misuse` with the message, then throws it.
int run_named(CommandLine& app, const std::vector<Subcommand>& subcommands, int argc, char** argv,
              const std::function<void(const std::string&)>& on_misuse = {});

}  // namespace tenon::command
