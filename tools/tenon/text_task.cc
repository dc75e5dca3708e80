// A character GPT over a text.
#include <fmt/format.h>

#include <cmath>

#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/base/hash.h"
#include "tenon/nn/data/prefetcher.h"
#include "tenon/ops/loss.h"
#include "tenon/tensor/copy.h"
#include "saved_run.h"
#include "train_task.h"

namespace tenon::command {
namespace {

class TextTask final : public TrainTask {
 public:
  TextTask(const TextTaskOptions& options, const std::string& text)
      : TrainTask(options.device),
        options_(options),
        vocabulary_(nn::Vocabulary::of(text)),
        gpt_(with_vocabulary(options.gpt, vocabulary_)) {
    const std::vector<std::uint8_t> ids = vocabulary_.encode(text);
    const std::size_t test_size = ids.size() / 10;  // the end of the text
    train_.assign(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(test_size));
    test_.assign(ids.end() - static_cast<std::ptrdiff_t>(test_size), ids.end());
    const auto wanted = static_cast<std::size_t>(options.gpt.length) + 1;
    if (test_.size() < wanted)
      throw InvalidArgument(fmt::format("{}: {} characters; with pieces of {} a text needs {}",
                                        options.file, ids.size(), options.gpt.length, 10 * wanted));
  }

  std::string title() const override {
    return fmt::format("a character GPT ({} layers of width {}) on {} characters, {} different",
                       gpt_.layers, gpt_.width, train_.size() + test_.size(), gpt_.vocabulary);
  }
  std::uint64_t steps_per_epoch() const override {
    const std::uint64_t per_step =
        static_cast<std::uint64_t>(options_.batch) * static_cast<std::uint64_t>(gpt_.length);
    return std::max<std::uint64_t>(1, train_.size() / per_step);
  }
  double learning_rate() const override { return 2e-3; }

  std::shared_ptr<nn::Module> build(Generator& generator) override {
    model_ = std::make_shared<nn::CharGpt>(gpt_, generator);
    return model_;
  }
  void use_checkpoints() override {
    model_->set_checkpoints(std::max<std::int64_t>(2, gpt_.layers));
  }

  void compute_in(DType) override {}  // the embedding's dtype is that of what follows

  void make_room(const OwnRows& rows) override {
    rows_ = rows;
    for (int i = 0; i < kSlots; ++i)
      rooms_.push_back(nn::make_text_batch(rows.most(options_.batch), gpt_.length));
    test_room_ = nn::make_text_batch(options_.batch, gpt_.length);
  }
  void start(std::uint64_t first, std::uint64_t end) override {
    prefetcher_ = std::make_unique<nn::Prefetcher<nn::TextBatch>>(
        rooms_, first, end, [this](std::uint64_t number, nn::TextBatch& room) {
          const std::vector<std::int64_t> own = rows_.of(options_.batch);
          nn::fill_text_batch(train_, options_.seed, number, room, &own);
          return room;
        });
  }
  void next() override { batch_ = prefetcher_->next(); }

  ExampleBatch batch(Slice slice) const override {
    const SliceRows of = rows_.of(slice, options_.batch);
    return {batch_->input.narrow(0, of.first, of.rows),
            batch_->target.narrow(0, of.first, of.rows).view({-1}), of};
  }
  Tensor logits_of(const Tensor& input) override {
    return to((*model_)(input), DType::kF32).view({-1, gpt_.vocabulary});
  }

  std::uint64_t test_batches() const override {
    const std::uint64_t per_batch =
        static_cast<std::uint64_t>(options_.batch) * static_cast<std::uint64_t>(gpt_.length);
    return std::max<std::uint64_t>(1, test_.size() / per_batch);
  }
  Score test(std::uint64_t number) override {
    nn::fill_text_batch(test_, options_.seed, number, test_room_);
    const Tensor logits = logits_of(to(test_room_.input, device_));
    const Tensor targets = to(test_room_.target, device_).view({-1});
    Score score = score_of(logits, targets);
    score.loss_sum = ops::cross_entropy(logits, targets, ops::Reduction::kSum).item<double>();
    return score;
  }

  std::uint64_t data_hash() const override {
    RunningHash hash;
    for (const auto* part : {&train_, &test_})
      for (const std::uint8_t id : *part) hash.add(id);
    return hash.value();
  }
  nn::Metadata metadata() const override {
    return {{"task", "text"},
            {"vocabulary", vocabulary_text(vocabulary_)},
            {"length", std::to_string(gpt_.length)},
            {"layers", std::to_string(gpt_.layers)},
            {"width", std::to_string(gpt_.width)},
            {"heads", std::to_string(gpt_.heads)}};
  }
  void finish() override {
    prefetcher_.reset();
    batch_ = nullptr;
    rooms_.clear();
    test_room_ = {};
    model_.reset();
  }

 private:
  static constexpr int kSlots = 3;

  static nn::GptOptions with_vocabulary(nn::GptOptions gpt, const nn::Vocabulary& vocabulary) {
    gpt.vocabulary = vocabulary.size();
    return gpt;
  }

  const TextTaskOptions options_;
  const nn::Vocabulary vocabulary_;
  const nn::GptOptions gpt_;
  std::vector<std::uint8_t> train_, test_;
  std::shared_ptr<nn::CharGpt> model_;
  OwnRows rows_;
  std::vector<nn::TextBatch> rooms_;
  nn::TextBatch test_room_;
  std::unique_ptr<nn::Prefetcher<nn::TextBatch>> prefetcher_;
  const nn::TextBatch* batch_ = nullptr;
};

}  // namespace

std::unique_ptr<TrainTask> make_text_task(const TextTaskOptions& options) {
  return std::make_unique<TextTask>(options, nn::read_text(options.file));
}

}  // namespace tenon::command
