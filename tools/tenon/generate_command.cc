// tenon generate: what a trained text model goes on with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "commands.h"
#include "saved_run.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/distributed/checkpoint.h"
#include "tenon/memory/scopes/with_scope.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/inference_mode.h"
#include "training_commands.h"
#include "training_memory.h"

namespace tenon::command {
namespace {

struct GenerateArguments {
  std::string file = "tenon-text.safetensors";
  std::string prompt = "\n";
  std::uint64_t count = 500;
  double temperature = 0.8;
  std::uint64_t seed = 1;
  std::string device = "cpu";
};

// Draws a class from logits; the likeliest one at temperature 0.
std::uint8_t draw(const float* logits, std::int64_t classes, double temperature, Random& random) {
  const auto best = std::max_element(logits, logits + classes);
  if (temperature == 0) return static_cast<std::uint8_t>(best - logits);
  std::vector<double> weights;
  double sum = 0;
  for (std::int64_t i = 0; i < classes; ++i) {
    weights.push_back(std::exp((static_cast<double>(logits[i]) - *best) / temperature));
    sum += weights.back();
  }
  double left = static_cast<double>(random.next() >> 11) * 0x1.0p-53 * sum;
  for (std::int64_t i = 0; i < classes; ++i) {
    left -= weights[static_cast<std::size_t>(i)];
    if (left < 0) return static_cast<std::uint8_t>(i);
  }
  return static_cast<std::uint8_t>(best - logits);
}

// Of a file, or of a folder that ranks have written.
TextModel load_run(const std::string& path) {
  if (!distributed::is_checkpoint(path)) return load_text_model(path);
  const nn::Metadata metadata = distributed::load_checkpoint_metadata(path);
  return load_text_model(
      path, metadata, distributed::count_checkpoint_parameters(path),
      [&](nn::Module& model) { distributed::load_checkpoint_weights(path, model); });
}

int run_generate(const GenerateArguments& a) {
  if (a.prompt.empty()) throw InvalidArgument("--prompt: it needs at least one character");
  const Device device = parse_model_device(a.device);
  const TextModel text = load_run(a.file);
  text.model->to(device);
  std::vector<std::uint8_t> ids = text.vocabulary.encode(a.prompt);
  const InferenceMode inference;
  Random random(a.seed);
  const auto length = static_cast<std::size_t>(text.model->options().length);
  nn::KeyValueCache cache = text.model->make_cache();
  fmt::print("{}", a.prompt);
  for (std::uint64_t i = 0; i < a.count; ++i) {
    // While the text fits into the model's view, only what is new goes through it. Then the view
    // moves on, every place has another number, and all keys are others.
    const bool fits = ids.size() <= length;
    const std::size_t known = fits ? static_cast<std::size_t>(cache.length()) : 0;
    const std::size_t fed = std::min(ids.size(), length) - known;
    const std::uint8_t id = with_scope([&] {
      const Tensor input = empty({1, static_cast<std::int64_t>(fed)}, DType::kI64);
      std::copy(ids.end() - static_cast<std::ptrdiff_t>(fed), ids.end(),
                input.data_ptr<std::int64_t>());
      const Tensor there = to(input, device);
      const Tensor all = fits ? text.model->step(there, cache) : (*text.model)(there);
      const Tensor logits = contiguous(to_host(all.select(1, -1)));
      return draw(logits.const_data_ptr<float>(), logits.numel(), a.temperature, random);
    });
    ids.push_back(id);
    fmt::print("{}", text.vocabulary.character(id));
  }
  fmt::print("\n");
  return kSuccess;
}

}  // namespace

Subcommand add_generate(CommandLine& app) {
  const auto arguments = std::make_shared<GenerateArguments>();
  CommandLine& generate = app.add_subcommand(kGenerate.name, kGenerate.about);
  generate.add_option("FILE", arguments->file, "The saved run: a file, or a folder").show_default();
  generate.add_option("--prompt", arguments->prompt, "The text to continue").may_be_empty();
  generate.add_option("--count", arguments->count, "Characters to write").show_default();
  generate
      .add_option("--temperature", arguments->temperature,
                  "0: always the most likely character; higher: more random")
      .show_default()
      .between(0, 100);
  generate
      .add_option("--device", arguments->device,
                  "cpu, or a Vulkan device")
      .show_default();
  generate.add_option("--seed", arguments->seed, "Seed of the random choices").show_default();
  return {&generate, [arguments] { return run_generate(*arguments); }};
}

}  // namespace tenon::command
