#include "tenon/lab/synthesis/training.h"

#include <algorithm>
#include <vector>

#include "tenon/lab/synthesis/model.h"

namespace tenon::synthesis {
namespace {

// The second stream communicates, the third prefetches, further ones compute statistics.
constexpr std::uint32_t kCommunication = 1;
constexpr std::uint32_t kPrefetch = 2;
constexpr std::uint64_t kBucketBytes = std::uint64_t{25} << 20;    // of gradients in flight
constexpr std::uint64_t kWorkspaceBytes = std::uint64_t{8} << 20;  // of matrix products, a stream

class Training {
 public:
  Training(Program& program, const Recipe& recipe)
      : program_(program),
        recipe_(recipe),
        tape_(program, recipe.precision),
        model_(make_model(tape_, recipe)),
        shapes_(recipe.seed + 101) {
    workspaces_.push_back(program.allocate(kWorkspaceBytes));
  }

  void run() {
    prefetched_ = load();
    for (std::uint32_t step = 0; step < recipe_.steps; ++step) {
      train();
      if (recipe_.evaluate_every != 0 && (step + 1) % recipe_.evaluate_every == 0) evaluate();
      program_.end_step(step + 1, recipe_.steps);
    }
  }

 private:
  std::uint32_t loading_stream() const { return recipe_.streams > kPrefetch ? kPrefetch : 0; }

  Tensor load() {
    const OnStream scope(program_, loading_stream());
    Tensor input = model_->input(recipe_.batch, shapes_);
    if (input.storage != nullptr) input.storage->record_use(0);
    return input;
  }

  void train() {
    const Phase phase(program_, "step");
    for (std::uint32_t pass = 0; pass < recipe_.accumulate; ++pass) {
      Tensor loss = model_->forward(std::move(prefetched_));
      tape_.end_forward();
      watch(loss);
      {
        const Phase backward(program_, "backward");
        tape_.backward();
      }
      prefetched_ = load();
    }
    if (recipe_.streams > kCommunication && recipe_.shards == 1) reduce();
    if (recipe_.clips) clip_gradients(tape_);
    optimizer_step(tape_, recipe_.optimizer);
    drop_gradients(tape_);
  }

  // Gradients in buckets, each sent while the next is packed.
  void reduce() {
    std::uint64_t packed = 0;
    StoragePtr sent;
    const auto send = [&] {
      StoragePtr bucket = program_.allocate(packed);
      program_.run(2 * packed);
      if (bucket != nullptr) bucket->record_use(kCommunication);
      sent = std::move(bucket);
      packed = 0;
    };
    for (const Parameter& parameter : tape_.parameters()) {
      packed += parameter.gradient.storage == nullptr ? 0 : parameter.gradient.bytes();
      if (packed >= kBucketBytes) send();
    }
    send();
  }

  // Statistics of a loss, on streams of their own.
  void watch(const Tensor& loss) {
    for (std::uint32_t stream = kPrefetch + 1; stream < recipe_.streams; ++stream) {
      const OnStream scope(program_, stream);
      const Tensor copy = tape_.make(1'024 * std::uint64_t{stream} * recipe_.batch, 4);
      const Tensor sorted = tape_.make(copy.elements, 4);
      program_.run(copy.bytes());
      if (loss.storage != nullptr) loss.storage->record_use(stream);
    }
  }

  void evaluate() {
    const Phase phase(program_, "evaluation");
    tape_.set_recording(false);
    std::vector<Tensor> results;
    Tensor next = std::move(prefetched_);
    for (int i = 0; i < kEvaluated; ++i) {
      Tensor input = i == 0 ? std::move(next) : model_->input(2 * recipe_.batch, shapes_);
      results.push_back(model_->forward(std::move(input)));
      tape_.end_forward();
    }
    tape_.set_recording(true);
    prefetched_ = load();
    free_in_order(results);
  }

  static constexpr int kEvaluated = 3;  // batches

  Program& program_;
  const Recipe recipe_;
  Tape tape_;
  std::unique_ptr<Model> model_;
  Random shapes_;
  Tensor prefetched_;
  std::vector<StoragePtr> workspaces_;
};

}  // namespace

std::unique_ptr<Model> make_model(Tape& tape, const Recipe& recipe) {
  switch (recipe.kind) {
    case Kind::kConvolution:
    case Kind::kDetection:
    case Kind::kDiffusion:
      return make_image_model(tape, recipe);
    case Kind::kRecommender:
      return make_recommender(tape, recipe);
    case Kind::kGraph:
      return make_graph_model(tape, recipe);
    default:
      return make_transformer(tape, recipe);
  }
}

std::uint32_t model_sizes(Kind kind) {
  switch (kind) {
    case Kind::kConvolution:
    case Kind::kDetection:
    case Kind::kDiffusion:
      return 6;
    case Kind::kRecommender:
      return 12;
    case Kind::kGraph:
      return 6;
    default:
      return kTransformerSizes;
  }
}

Trace run_program(Program& program, const Recipe& recipe) {
  if (!recipe.trains()) {
    run_generation(program, recipe);
    return program.finish();
  }
  Training training(program, recipe);
  training.run();
  return program.finish();
}

}  // namespace tenon::synthesis
