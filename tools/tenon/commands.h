// The subcommands of `tenon`: one source file each.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace tenon::command {

// What the command's process ends with.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;   // a bug in Tenon
inline constexpr int kBadInput = 2;  // usage, or a file that cannot be read

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

}  // namespace tenon::command
