// The command: `tenon replay`, `tenon explain`, `tenon view` and the rest of them.
#include <vector>

#include "commands.h"
#include "launcher.h"
#include "process.h"
#include "run_command.h"
#include "tenon/base/environment.h"
#include "tenon/base/version.h"
#include "tenon/trace/recording_scope.h"
#include "training_commands.h"

namespace {

using namespace tenon;

int run(int argc, char** argv) {
  command::CommandLine app(
      "Tenon shows what any memory allocator would have needed for a recorded program.",
      "tenon " TENON_VERSION);
  app.require_subcommand();
  app.footer(
      "Examples:\n"
      "  tenon explain snapshot.pickle                what filled the memory, why did it fail?\n"
      "  tenon replay snapshot.pickle                 what would other settings have needed?\n"
      "  tenon replay *.csv.zst --find-capacity       ... and the smallest device for each?\n"
      "  tenon replay run.pickle --capacity 24GiB     would it have fitted into 24 GiB?\n"
      "  tenon advise run.pickle --capacity 24GiB     which settings would have made it fit?\n"
      "  tenon view run.pickle                        what was in memory, when, and from where?\n"
      "  tenon report rank_*.pickle                   one page: verdict, causes, picture, ranks\n"
      "  tenon fleet snapshots                        a folder: outliers, one setting for all\n"
      "  tenon train fashion-mnist                    train a cnn; where did its bytes go?\n"
      "\"tenon replay --help\" says what the figures mean.");
  const std::vector<command::Subcommand> subcommands = {
      command::add_replay(app),   command::add_explain(app),  command::add_advise(app),
      command::add_plan(app),     command::add_validate(app), command::add_diff(app),
      command::add_view(app),     command::add_serve(app),    command::add_report(app),
      command::add_fleet(app),    command::add_convert(app),  command::add_synthesize(app),
      command::add_policies(app), command::add_info(app),
  };
  // For the help; main() has handed them on.
  for (const command::TrainingCommand& training : command::kTrainingCommands)
    app.add_subcommand(training.name, training.about);
  return command::run_named(app, subcommands, argc, argv, command::report_misuse_once);
}

}  // namespace

int main(int argc, char** argv) {
  tenon::command::prepare_process();
  if (tenon::command::launched_ranks() > 1)
    tenon::command::report_as_rank(tenon::command::launched_rank());
  return tenon::command::run_guarded([&] {
    tenon::command::require_recording_elsewhere(argc, argv);
    if (tenon::command::needs_training_program(argc, argv))
      return tenon::command::become_training_program(argv);
    tenon::check_environment();
    tenon::keep_no_failure_of_environment();  // replays on devices that are too small
    return run(argc, argv);
  });
}
