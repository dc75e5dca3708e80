// The subcommands of `tenon`: one source file each.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace tenon::command {

// What the command's process ends with.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;        // a run that cannot go on, or a bug in Tenon
inline constexpr int kBadInput = 2;       // usage, or a file that cannot be read
inline constexpr int kInterrupted = 130;  // by Ctrl-C, as shells have it

// Each adds its subcommand to `app` and returns what runs it.
struct Subcommand {
  CLI::App* app = nullptr;
  std::function<int()> run;
};
Subcommand add_replay(CLI::App& app);
Subcommand add_explain(CLI::App& app);
Subcommand add_diff(CLI::App& app);
Subcommand add_convert(CLI::App& app);
Subcommand add_policies(CLI::App& app);
Subcommand add_info(CLI::App& app);
Subcommand add_vectors(CLI::App& app);
Subcommand add_view(CLI::App& app);
Subcommand add_serve(CLI::App& app);
std::vector<Subcommand> add_train(CLI::App& app);  // one for each thing to train
Subcommand add_generate(CLI::App& app);
Subcommand add_plan(CLI::App& app);
Subcommand add_validate(CLI::App& app);
Subcommand add_advise(CLI::App& app);

}  // namespace tenon::command
