// tenon-training: the subcommands of `tenon` that compute with tensors.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "fleet_ranks.h"
#include "launcher.h"
#include "process.h"
#include "ranks.h"
#include "run_command.h"
#include "tenon/base/environment.h"
#include "tenon/base/error.h"
#include "tenon/base/version.h"
#include "training_commands.h"

namespace {

using namespace tenon;

int run(int argc, char** argv) {
  command::CommandLine app("The part of tenon that computes: tenon runs it when asked to.",
                           "tenon " TENON_VERSION);
  app.require_subcommand();
  std::vector<command::Subcommand> subcommands = {command::add_vectors(app),
                                                  command::add_generate(app),
                                                  command::add_fleet(app, command::join_fleet)};
  for (command::Subcommand& training : command::add_train(app))
    subcommands.push_back(std::move(training));
  return command::run_named(app, subcommands, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  tenon::command::prepare_process();
  if (tenon::command::launched_ranks() > 1)
    tenon::command::report_as_rank(tenon::command::launched_rank());
  return tenon::command::leave_ranks(tenon::command::run_guarded([&] {
    try {
      tenon::command::require_recording_elsewhere(argc, argv);
      if (argc == 3 && argv[1] == std::string_view(command::kReportMisuse))
        throw tenon::InvalidArgument(argv[2]);
      tenon::check_environment();
      return run(argc, argv);
    } catch (const tenon::InvalidArgument&) {
      tenon::command::join_to_report();
      throw;
    }
  }));
}
