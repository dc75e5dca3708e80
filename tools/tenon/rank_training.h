// The part of a training run that its ranks do together.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/distributed/sharded_model.h"
#include "tenon/lab/step_profile.h"
#include "tenon/nn/optimizer.h"
#include "tenon/nn/state.h"
#include "train_task.h"

namespace tenon::command {

struct RankSettings {
  std::shared_ptr<distributed::ProcessGroup> group;  // null: a run of one process
  distributed::Shard shard = distributed::Shard::kNothing;
  std::uint64_t slices = 1;  // of a batch, over all ranks
  bool prefetch = true;      // gathers the next layer while one computes
  std::optional<DType> compute;  // of mixed precision: Note [Mixed precision]

  // Whether this process prints the report.
  bool reports() const { return group == nullptr || group->rank() == 0; }
};

// The names of --precision; none is "f32". Requires: one of the names.
std::string precision_name(std::optional<DType> compute);
std::optional<DType> precision_of(const std::string& name);

// The metadata of a saved run: a file, or a folder that ranks have written. Throws ParseError.
nn::Metadata load_run_metadata(const std::string& path);
// The number of elements of the model's tensors.
std::uint64_t count_run_parameters(const std::string& path);

// Bytes of one rank. Peaks are up to the end of the second step, if not stated otherwise.
struct RankMemory {
  std::uint64_t peak_bytes = 0;
  std::array<std::uint64_t, kMemoryUses> at_peak{};
  std::uint64_t run_peak_bytes = 0;  // of the whole run
  std::uint64_t reserved_peak_bytes = 0;
  std::uint64_t sent_bytes_per_step = 0;
  std::uint64_t sent_bytes = 0;  // so far
  double waited_seconds_per_step = 0;  // for other ranks and for the network; the mean
};

// Sums of one step over all slices.
struct StepNumbers {
  Score score;
  std::uint64_t samples = 0;
};

// The rank's model, and sums over the ranks in an order that does not depend on their number. All
// ranks call the same functions. Not thread-safe.
class RankTraining {
 public:
  // As ShardedModel's.
  RankTraining(const distributed::ShardedModel::Builder& build, const RankSettings& settings,
               Device device);

  const std::shared_ptr<nn::Module>& model() const { return model_->model(); }
  const std::vector<nn::NamedTensor>& parts() const { return model_->parts(); }

  // The slices of each batch that this rank runs.
  std::vector<Slice> own_slices() const;
  // A step up to its gradients: `pass` is forward and backward of a slice. `stop`: the signal that
  // asked this rank to end, or 0.
  StepNumbers run(const std::function<BatchResult(Slice)>& pass, int stop);
  double gradient_norm() { return model_->gradient_norm(); }
  void after_update();
  // The signal that asked any rank to end, as of the last step; 0: none.
  int stop_signal() const { return stop_signal_; }

  // Divides the test batches among the ranks.
  Score test(std::uint64_t batches, const std::function<Score(std::uint64_t)>& score_of_batch);

  // The hash of the whole model, as in a run of one process.
  std::uint64_t weights_hash();
  void save(const std::string& folder, std::uint64_t step, nn::Optimizer& optimizer,
            const nn::Metadata& metadata);
  void load(const std::string& folder, nn::Optimizer& optimizer);

  RankMemory memory(const StepProfile& profile, std::uint64_t run_peak_bytes,
                    std::uint64_t reserved_peak_bytes) const;
  // Of all ranks.
  std::vector<RankMemory> gather(const RankMemory& mine);

 private:
  std::vector<double> gather_rows(const std::vector<double>& mine);
  std::uint64_t bytes_of_steps() const;

  const std::shared_ptr<distributed::ProcessGroup> group_;
  const std::uint64_t slices_;
  const std::uint64_t slices_here_;
  const std::unique_ptr<distributed::ShardedModel> model_;
  int stop_signal_ = 0;
  std::uint64_t sent_before_ = 0;  // the step
  std::uint64_t sent_bytes_per_step_ = 0;
  double waited_before_ = 0;   // the step
  double waited_seconds_ = 0;  // in steps
  std::uint64_t steps_ = 0;
};

}  // namespace tenon::command
