// The subcommands of `tenon`: one source file each.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "command_line.h"

namespace tenon::command {

// What the command's process ends with.
inline constexpr int kSuccess = 0;        // done
inline constexpr int kFailure = 1;        // a run that cannot go on, lost output, or a bug in Tenon
inline constexpr int kBadInput = 2;       // usage, or a file that cannot be read
inline constexpr int kSignalled = 128;    // plus the signal that ended it, as shells have it

class FleetRanks;

// Each adds its subcommand to `app` and returns what runs it.
struct Subcommand {
  CommandLine* line = nullptr;
  std::function<int()> run;
};
Subcommand add_replay(CommandLine& app);
Subcommand add_explain(CommandLine& app);
Subcommand add_diff(CommandLine& app);
Subcommand add_convert(CommandLine& app);
Subcommand add_policies(CommandLine& app);
Subcommand add_info(CommandLine& app);
Subcommand add_vectors(CommandLine& app);
Subcommand add_view(CommandLine& app);
Subcommand add_serve(CommandLine& app);
Subcommand add_report(CommandLine& app);
// `join`: how the processes that a launcher started find each other; none: there are no others.
Subcommand add_fleet(CommandLine& app, std::function<std::unique_ptr<FleetRanks>()> join = {});
std::vector<Subcommand> add_train(CommandLine& app);  // one for each thing to train
Subcommand add_generate(CommandLine& app);
Subcommand add_plan(CommandLine& app);
Subcommand add_validate(CommandLine& app);
Subcommand add_advise(CommandLine& app);
Subcommand add_synthesize(CommandLine& app);

}  // namespace tenon::command
