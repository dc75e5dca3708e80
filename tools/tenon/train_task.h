// What can be trained: a model, its data, and how both are told apart in a file.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/nn/data/images.h"
#include "tenon/nn/data/text.h"
#include "tenon/nn/models.h"
#include "tenon/nn/schedule.h"
#include "tenon/nn/state.h"

namespace tenon::command {

// Counts of one batch, or of a whole data set.
struct Score {
  double loss_sum = 0;  // over `counted`
  std::uint64_t correct = 0;
  std::uint64_t counted = 0;
  void add(const Score& other) {
    loss_sum += other.loss_sum;
    correct += other.correct;
    counted += other.counted;
  }
  double accuracy() const {
    return counted == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(counted);
  }
};

// A loss that is still a tensor, and the numbers beside it.
struct BatchResult {
  Tensor loss;
  Score score;
  std::uint64_t samples = 0;
  double share = 1;  // of the batch: the loss is the mean of a slice
};

// Which of a batch's `count` equal pieces, for ranks and for gradients that are added up.
struct Slice {
  std::uint64_t number = 0;
  std::uint64_t count = 1;
};

// The examples of a slice of a batch. Where there are fewer examples than slices, some slices have
// none: they run one example that does not count.
struct SliceRows {
  SliceRows(Slice slice, std::int64_t batch);
  std::int64_t first = 0;
  std::int64_t rows = 0;    // to run
  std::int64_t counted = 0;
  double share = 1;         // of the batch
};

// What this process makes of each batch: the rows of its slices, one slice after another.
class OwnRows {
 public:
  explicit OwnRows(std::vector<Slice> slices = {Slice{}}) : slices_(std::move(slices)) {}
  // The most rows that it has of a batch of up to `batch` examples.
  std::int64_t most(std::int64_t batch) const;
  // The rows' numbers in a batch.
  std::vector<std::int64_t> of(std::int64_t batch) const;
  // A slice's rows; `first` is counted among the rows here. Requires: one of the slices.
  SliceRows of(Slice slice, std::int64_t batch) const;

 private:
  std::vector<Slice> slices_;
};

// What a model reads, and the class that each row of its logits should have; on the host.
struct ExampleBatch {
  Tensor input;
  Tensor targets;  // i64 [rows of the logits]
  SliceRows rows;
};

// One training run's model and data. The trainer calls build, make_room and start once, in this
// order, then next and run for every step.
class TrainTask {
 public:
  explicit TrainTask(Device device) : device_(device) {}
  virtual ~TrainTask() = default;

  virtual std::string title() const = 0;
  virtual std::uint64_t steps_per_epoch() const = 0;
  virtual double learning_rate() const = 0;  // that suits the model
  // The model, its numbers drawn from the generator.
  virtual std::shared_ptr<nn::Module> build(Generator& generator) = 0;
  // Backward computes again what a checkpointed part made.
  virtual void use_checkpoints() = 0;
  // The model's parameters are of this dtype; losses and scores are computed in f32 in any case.
  virtual void compute_in(DType dtype) = 0;
  // Memory for these rows of batches, made once; a thread fills it from step `first` up to `end`.
  virtual void make_room(const OwnRows& rows) = 0;
  virtual void start(std::uint64_t first, std::uint64_t end) = 0;
  // The next batch; the same one can be run again, by slices of the rows that there is room for.
  virtual void next() = 0;
  virtual ExampleBatch batch(Slice slice) const = 0;
  // f32, of an input on the model's device.
  virtual Tensor logits_of(const Tensor& input) = 0;
  BatchResult run(Slice slice);
  // Number of test batches, and the score of one of them.
  virtual std::uint64_t test_batches() const = 0;
  virtual Score test(std::uint64_t batch) = 0;
  // What a resumed run must know to make the same task.
  virtual nn::Metadata metadata() const = 0;
  // Of all examples: ranks compare it.
  virtual std::uint64_t data_hash() const = 0;
  // Batches go before the memory that they came from.
  virtual void finish() = 0;

 protected:
  const Device device_;  // that the model runs on
};

struct ImageTaskOptions {
  std::string folder;
  std::string model = "cnn";
  std::int64_t batch = 64;
  std::uint64_t seed = 1;
  Device device;  // that the model runs on
};
// Throws ParseError for data that cannot be used, InvalidArgument for an unknown model.
std::unique_ptr<TrainTask> make_image_task(const ImageTaskOptions& options);

struct TextTaskOptions {
  std::string file;
  std::int64_t batch = 32;
  std::uint64_t seed = 1;
  Device device;  // that the model runs on
  nn::GptOptions gpt;  // the vocabulary comes from the text
};
std::unique_ptr<TrainTask> make_text_task(const TextTaskOptions& options);

// The score of logits [n, classes] for i64 classes [n], and no loss.
Score score_of(const Tensor& logits, const Tensor& classes);

}  // namespace tenon::command
