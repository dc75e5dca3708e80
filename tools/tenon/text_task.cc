// A character GPT over a text.
#include <fmt/format.h>

#include <cmath>

#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/nn/data/prefetcher.h"
#include "tenon/ops/loss.h"
#include "train_task.h"

namespace tenon::command {
namespace {

// Metadata are text: any byte as two hexadecimal digits.
std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string from_hex(const std::string& text, const std::string& path) {
  const auto digit = [&](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    throw ParseError(path, 0, 0, "its vocabulary is damaged");
  };
  if (text.size() % 2 != 0) throw ParseError(path, 0, 0, "its vocabulary is damaged");
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1])));
  return bytes;
}

nn::Vocabulary saved_vocabulary(const nn::Metadata& metadata, const std::string& path) {
  try {
    return nn::Vocabulary(from_hex(metadata_text(metadata, "vocabulary", path), path));
  } catch (const InvalidArgument& error) {
    throw ParseError(path, 0, 0, fmt::format("its vocabulary is damaged: {}", error.what()));
  }
}

class TextTask final : public TrainTask {
 public:
  TextTask(const TextTaskOptions& options, const std::string& text)
      : options_(options),
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

  void make_room() override {
    for (int i = 0; i < kSlots; ++i)
      rooms_.push_back(nn::make_text_batch(options_.batch, gpt_.length));
    test_room_ = nn::make_text_batch(options_.batch, gpt_.length);
  }
  void start(std::uint64_t first, std::uint64_t end) override {
    prefetcher_ = std::make_unique<nn::Prefetcher<nn::TextBatch>>(
        rooms_, first, end, [this](std::uint64_t number, nn::TextBatch& room) {
          nn::fill_text_batch(train_, options_.seed, number, room);
          return room;
        });
  }
  void next() override { batch_ = prefetcher_->next(); }

  BatchResult run() override {
    const auto [logits, targets] = logits_of(*batch_);
    return {ops::cross_entropy(logits, targets), score_of(logits, targets),
            static_cast<std::uint64_t>(options_.batch)};
  }

  std::uint64_t test_batches() const override {
    const std::uint64_t per_batch =
        static_cast<std::uint64_t>(options_.batch) * static_cast<std::uint64_t>(gpt_.length);
    return std::max<std::uint64_t>(1, test_.size() / per_batch);
  }
  Score test(std::uint64_t number) override {
    nn::fill_text_batch(test_, options_.seed, number, test_room_);
    const auto [logits, targets] = logits_of(test_room_);
    Score score = score_of(logits, targets);
    score.loss_sum = ops::cross_entropy(logits, targets, ops::Reduction::kSum).item<double>();
    return score;
  }

  nn::Metadata metadata() const override {
    return {{"task", "text"},
            {"vocabulary", to_hex(vocabulary_.characters())},
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
  struct Pair {
    Tensor logits;   // [n * length, vocabulary]
    Tensor targets;  // [n * length]
  };
  Pair logits_of(const nn::TextBatch& batch) {
    return {(*model_)(batch.input).view({-1, gpt_.vocabulary}), batch.target.view({-1})};
  }

  const TextTaskOptions options_;
  const nn::Vocabulary vocabulary_;
  const nn::GptOptions gpt_;
  std::vector<std::uint8_t> train_, test_;
  std::shared_ptr<nn::CharGpt> model_;
  std::vector<nn::TextBatch> rooms_;
  nn::TextBatch test_room_;
  std::unique_ptr<nn::Prefetcher<nn::TextBatch>> prefetcher_;
  const nn::TextBatch* batch_ = nullptr;
};

}  // namespace

nn::GptOptions saved_gpt_options(const nn::Metadata& metadata, const std::string& path) {
  const auto number = [&](const char* key) {
    constexpr std::uint64_t kMost = 1 << 20;
    const std::uint64_t value = metadata_number(metadata, key, path);
    if (value < 1 || value > kMost)
      throw ParseError(path, 0, 0,
                       fmt::format("its \"{}\" is {}; it may be 1 to {}", key, value, kMost));
    return static_cast<std::int64_t>(value);
  };
  nn::GptOptions gpt;
  gpt.length = number("length");
  gpt.layers = number("layers");
  gpt.width = number("width");
  gpt.heads = number("heads");
  if (gpt.width % gpt.heads != 0)
    throw ParseError(path, 0, 0, fmt::format("its {} heads do not divide its width of {}",
                                             gpt.heads, gpt.width));
  // Each block has matrices of 3, 1, 4 and 4 times the width's square; before anything is built.
  const auto width = static_cast<double>(gpt.width);
  const double needed = width * (12 * static_cast<double>(gpt.layers) * width +
                                 static_cast<double>(gpt.length));
  const auto held = static_cast<double>(nn::count_saved_parameters(path));
  if (needed > held)
    throw ParseError(path, 0, 0,
                     fmt::format("its tensors hold {:.0f} numbers; a model of {} layers of width "
                                 "{} and length {} has at least {:.0f}",
                                 held, gpt.layers, gpt.width, gpt.length, needed));
  return gpt;
}

std::unique_ptr<TrainTask> make_text_task(const TextTaskOptions& options) {
  return std::make_unique<TextTask>(options, nn::read_text(options.file));
}

TextModel load_text_model(const std::string& path) {
  const nn::Metadata metadata = nn::load_metadata(path);
  if (metadata_text(metadata, "task", path) != "text")
    throw ParseError(path, 0, 0, "it holds no model of a text: train one with tenon train text");
  nn::Vocabulary vocabulary = saved_vocabulary(metadata, path);
  nn::GptOptions gpt = saved_gpt_options(metadata, path);
  gpt.vocabulary = vocabulary.size();
  Generator generator;
  auto model = std::make_shared<nn::CharGpt>(gpt, generator);
  nn::load_state(path, *model);
  model->eval();
  return {std::move(model), std::move(vocabulary)};
}

}  // namespace tenon::command
