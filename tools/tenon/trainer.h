// The training loop of the command.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rank_training.h"
#include "tenon/lab/step_profile.h"
#include "tenon/nn/loss_scale.h"
#include "train_task.h"

namespace tenon::command {

struct TrainSettings {
  std::string allocator = "caching";
  Device device;             // of the model and its steps
  std::uint64_t limit_bytes = 0;  // 0: none
  std::uint64_t seed = 1;
  std::uint64_t epochs = 5;
  double learning_rate = 0;  // at its highest; 0: the task's
  std::int64_t batch = 64;   // for the file only: the task knows it
  bool checkpoints = false;  // backward computes activations again
  std::string save_file;     // with ranks: a folder
  std::uint64_t save_every = 0;  // steps; 0: none but the last
  bool save_at_end = false;
  RankSettings ranks;        // without a group: this process trains alone
  std::string resume_file;  // empty: from the beginning
  bool quiet = false;       // nothing on stdout
};

// What a run leaves to report.
struct TrainOutcome {
  int stop_signal = 0;  // what interrupted it; 0: nothing did
  double test_accuracy = 0;
  double test_loss = 0;
  double final_loss = 0;  // mean training loss of the last epoch
  double samples_per_second = 0;
  std::uint64_t steps = 0;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t reserved_peak_bytes = 0;
  std::uint64_t driver_calls_after_step_2 = 0;
  std::uint64_t weights_hash = 0;
  std::uint64_t layout_hash = 0;
  std::vector<StepEvent> events;  // from the start to the end of the second step
  // Of the arena around each step.
  bool has_arena = false;
  std::uint64_t captured_bytes = 0;  // of the memory of captured steps; 0: there is none
  bool checkpoints = false;
  std::uint64_t allocations_per_step = 0;
  std::uint64_t predicted_bytes = 0;
  std::uint64_t arena_bytes = 0;  // in chunks
  std::uint64_t arena_chunks = 0;
  std::uint64_t full_steps = 0;
  std::uint64_t smaller_steps = 0;
  std::uint64_t larger_steps = 0;
  std::string plan_report;
  std::vector<RankMemory> ranks;  // of all, in order
  std::optional<nn::LossScale::State> loss_scale;  // at the end; with f16
};

// Trains until the epochs are over or the program is asked to stop (SIGINT, SIGTERM, SIGHUP), in
// which case the run is saved. Throws OutOfMemory where the limit is too small, Diverged where the
// loss or a gradient is no number, and what the task throws; a file saved earlier stays whole.
TrainOutcome train(TrainTask& task, const TrainSettings& settings);

// What this rank's memory is in the first two steps.
RankMemory measure_rank(TrainTask& task, const TrainSettings& settings);

// What the policy must hold for the first two steps and a test, without a limit.
std::uint64_t measure_need(TrainTask& task, TrainSettings settings);

// The loss is no number any more; names the operator that made the first NaN.
class Diverged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tenon::command
