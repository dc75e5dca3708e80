// Training beside PyTorch, where the build found it: one process, the same models, weights,
// batches and threads. Sides take turns of steps, so that a busy machine slows both alike; those in
// the first 20 ms of a turn are not timed.
//   bench_training [--threads N] [--data FILE]   (without N: times on one and on two)
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "../torch_name.h"
#include "peer.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/parallel.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/lab/step_meter.h"
#include "tenon/memory/host/host_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/memory/scopes/with_scope.h"
#include "tenon/nn/data/text.h"
#include "tenon/nn/optimizer.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/random.h"

namespace tenon::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMostOfTorchBytes = 0.7;  // of tensors at once

double time_ns(const std::function<void()>& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

std::shared_ptr<nn::Module> build(const Case& what) {
  Generator generator(1);
  if (what.name == "mlp") return nn::make_mlp({}, generator);
  if (what.name == "cnn") return nn::make_cnn({}, generator);
  if (what.name == "gpt") return std::make_shared<nn::CharGpt>(what.gpt, generator);
  auto model = std::make_shared<nn::Sequential>();
  model->add(std::make_shared<nn::Linear>(2, 8, true, generator));
  model->add(nn::make_function([](const Tensor& x) { return ops::tanh(x); }));
  model->add(std::make_shared<nn::Linear>(8, 1, true, generator));
  return model;
}

// When parameters are updated: after backward, all gradients having been there at once; or each as
// its gradient comes (nn::UpdatesInBackward), which ends with the same weights.
enum class Mode { kAfterBackward, kInBackward };

// Our side of a case.
class Ours {
 public:
  Ours(const Case& what, Mode mode) : what_(what), model_(build(what)) {
    if (what.optimizer == "sgd")
      optimizer_ = std::make_unique<nn::Sgd>(
          model_->named_parameters(),
          nn::SgdOptions{.learning_rate = what.learning_rate, .momentum = 0.9});
    else
      optimizer_ = std::make_unique<nn::Adam>(model_->named_parameters(),
                                              nn::AdamOptions{.learning_rate = what.learning_rate});
    if (mode == Mode::kInBackward) updates_ = std::make_unique<nn::UpdatesInBackward>(*optimizer_);
  }
  std::vector<nn::NamedTensor> weights() const { return model_->named_parameters(); }

  double step(const Tensor& input, const Tensor& target) {
    const Tensor loss = loss_of(input, target);
    autograd::backward(loss);
    if (updates_ == nullptr) {
      optimizer_->step();
      optimizer_->zero_grad();
    }
    return loss.item<double>();
  }

 private:
  Tensor loss_of(const Tensor& input, const Tensor& target) {
    const Tensor out = (*model_)(input);
    if (what_.name == "2-8-1") return ops::mse_loss(out, target);
    if (what_.name == "gpt")
      return ops::cross_entropy(out.view({-1, what_.gpt.vocabulary}), target.view({-1}));
    return ops::cross_entropy(out, target);
  }

  const Case what_;
  const std::shared_ptr<nn::Module> model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<nn::UpdatesInBackward> updates_;
};

// Most bytes of our tensors at once, for the batch and some steps.
std::uint64_t our_peak_bytes(const Case& what, Mode mode) {
  HostBackend backend;
  HostAllocator allocator(backend);
  StepMeter meter(allocator);
  const AllocatorGuard guard(Device{}, meter);
  Ours ours(what, mode);
  for (int i = 0; i < 3; ++i) ours.step(what.input, what.target);
  return meter.peak_bytes();
}

// The slowest of each mode beside PyTorch.
struct Worst {
  WorstRatio after, during;
};

// One step of each after the other; the fastest of each counts.
void compare(const Case& what, int threads, const char* wanted, Worst& worst) {
  Ours after(what, Mode::kAfterBackward), during(what, Mode::kInBackward);
  const std::unique_ptr<Peer> peer = make_peer(what, after.weights(), threads);
  const std::function<void()> steps[3] = {
      [&] { with_scope([&] { after.step(what.input, what.target); }); },
      [&] { with_scope([&] { during.step(what.input, what.target); }); },
      [&] { peer->step(what.input, what.target); }};
  const std::size_t sides = peer == nullptr ? 2 : 3;
  for (int i = 0; i < 3; ++i) steps[1]();
  const double once = std::max(time_ns(steps[1]), 1e3);
  const int inner = std::max(1, static_cast<int>(2e6 / once));
  const int rounds = std::clamp(static_cast<int>(6e9 / (3 * once * inner)), 5, 50);
  double best[3] = {1e18, 1e18, 1e18};
  for (int round = 0; round < rounds; ++round)
    for (std::size_t side = 0; side < sides; ++side) {
      // The threads of the side before it look for work for some milliseconds more.
      for (const auto start = Clock::now(); Clock::now() - start < std::chrono::milliseconds(20);)
        steps[side]();
      best[side] = std::min(best[side], time_ns([&] {
                                          for (int i = 0; i < inner; ++i) steps[side]();
                                        }) / inner);
    }
  const auto ratio = [&](double ours) {
    return peer == nullptr ? "-" : fmt::format("{:.2f}", best[2] / ours);
  };
  fmt::print("{:<8} {:<5} {:>12.1f} {:>12.1f} {:>12} {:>8} {:>8}   {}\n", what.name, what.optimizer,
             best[0] / 1e3, best[1] / 1e3,
             peer == nullptr ? "-" : fmt::format("{:.1f}", best[2] / 1e3), ratio(best[0]),
             ratio(best[1]), wanted);
  if (peer == nullptr) return;
  worst.after.add(what.name + " " + what.optimizer, best[0], best[2]);
  worst.during.add(what.name + " " + what.optimizer, best[1], best[2]);
}

void compare_memory(const std::vector<Case>& cases, int threads) {
  fmt::print("\nmost bytes of tensors at once\n{:<8} {:<5} {:>12} {:>12} {:>12} {:>8} {:>8}\n",
             "model", "", "after", "in backward", "PyTorch", "ratio", "ratio");
  double worst = 0;
  std::string worst_name;
  for (const Case& what : cases) {
    const std::uint64_t after = our_peak_bytes(what, Mode::kAfterBackward);
    const std::uint64_t during = our_peak_bytes(what, Mode::kInBackward);
    const Ours ours(what, Mode::kAfterBackward);
    const std::uint64_t peer = peer_peak_of(what, ours.weights(), threads);
    const auto ratio = [&](std::uint64_t bytes) {
      return peer == 0
                 ? "-"
                 : fmt::format("{:.3f}", static_cast<double>(bytes) / static_cast<double>(peer));
    };
    fmt::print("{:<8} {:<5} {:>12} {:>12} {:>12} {:>8} {:>8}   wanted: {}\n", what.name,
               what.optimizer, format_byte_size(after), format_byte_size(during),
               peer > 0 ? format_byte_size(peer) : "-", ratio(after), ratio(during),
               kMostOfTorchBytes);
    if (peer == 0 || static_cast<double>(during) <= worst * static_cast<double>(peer)) continue;
    worst = static_cast<double>(during) / static_cast<double>(peer);
    worst_name = what.name + " " + what.optimizer;
  }
  if (worst > 0)
    fmt::print("worst, updates in backward: {:.3f} x the bytes of {} ({}); wanted: at most {}: "
               "{}\n",
               worst, torch_name(), worst_name, kMostOfTorchBytes,
               worst <= kMostOfTorchBytes ? "kept" : "NOT");
}

// The same losses, step by step, from the same weights and batches.
void compare_losses(const Case& what, const std::vector<std::uint8_t>& text, int threads) {
  Ours ours(what, Mode::kInBackward);
  const std::unique_ptr<Peer> peer = make_peer(what, ours.weights(), threads);
  const nn::TextBatch batch = nn::make_text_batch(what.input.size(0), what.input.size(1));
  double first = 0;
  double last = 0;
  double largest = 0;
  int steps = 0;
  for (; steps < 100; ++steps) {
    nn::fill_text_batch(text, 7, static_cast<std::uint64_t>(steps), batch);
    last = with_scope([&] { return ours.step(batch.input, batch.target); });
    if (steps == 0) first = last;
    if (peer == nullptr) continue;
    const double theirs = peer->step(batch.input, batch.target);
    largest = std::max(largest, std::abs(last - theirs) / theirs);
  }
  fmt::print("the character GPT on {} characters, {} steps: loss {:.4f} to {:.4f}", text.size(),
             steps, first, last);
  fmt::print("{}\n",
             peer == nullptr
                 ? std::string()
                 : fmt::format("; PyTorch's differ by {:.1e} of their value at most", largest));
}

// Peak memory of a deep chain with and without checkpoints.
void show_depth() {
  fmt::print("\n{:<8} {:>14} {:>14}   activations at the peak; 4 times the depth: x {:.1f}\n",
             "layers", "all kept", "checkpoints", 2.0);
  const std::int64_t width = 64;
  std::uint64_t last = 0;
  for (const std::int64_t depth : {16, 64, 256}) {
    std::uint64_t peaks[2] = {};
    for (const bool checkpoints : {false, true}) {
      HostBackend backend;
      HostAllocator allocator(backend);
      StepMeter meter(allocator);
      const AllocatorGuard guard(Device{}, meter);
      nn::Sequential model;
      for (std::int64_t i = 0; i < depth; ++i)
        model.add(nn::make_function([](const Tensor& x) { return ops::tanh(x); }));
      if (checkpoints)
        model.set_checkpoints(static_cast<std::int64_t>(std::sqrt(static_cast<double>(depth))));
      Tensor x = randn({256, width});
      x.set_requires_grad(true);
      autograd::backward(ops::sum(model(x)));
      peaks[checkpoints] = meter.peak_bytes();
    }
    fmt::print("{:<8} {:>14} {:>14}{}\n", depth, format_byte_size(peaks[0]),
               format_byte_size(peaks[1]),
               last == 0 ? ""
                         : fmt::format("   x {:.2f}",
                                       static_cast<double>(peaks[1]) / static_cast<double>(last)));
    last = peaks[1];
  }
}

int run(int argc, char** argv) {
  int threads = 0;  // 0: one, and the times on two as well
  std::string file = TENON_SOURCE_DIR "/data/text/genesis.txt";
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--threads") == 0) threads = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--data") == 0) file = argv[i + 1];
  }
  print_torch();
  const bool both = threads == 0;
  threads = std::max(threads, 1);
  set_num_threads(threads);
  const std::string content = nn::read_text(file);
  const nn::Vocabulary vocabulary = nn::Vocabulary::of(content);
  const std::vector<std::uint8_t> text = vocabulary.encode(content);

  Generator generator(3);
  const Tensor images = randn({64, 1, 28, 28}, DType::kF32, generator);
  const Tensor labels = randint(0, 10, {64}, DType::kI64, generator);
  Case gpt{"gpt", "adam", 1e-3, {}, {}, {}};
  gpt.gpt.vocabulary = vocabulary.size();
  const nn::TextBatch batch = nn::make_text_batch(16, gpt.gpt.length);
  nn::fill_text_batch(text, 7, 0, batch);
  gpt.input = batch.input;
  gpt.target = batch.target;
  const Tensor points = randn({16, 2}, DType::kF32, generator);
  const Tensor heights = randn({16, 1}, DType::kF32, generator);
  const std::vector<Case> cases = {{"2-8-1", "sgd", 1e-2, points, heights, {}},
                                   {"mlp", "sgd", 1e-2, images, labels, {}},
                                   {"mlp", "adam", 1e-3, images, labels, {}},
                                   {"cnn", "adam", 1e-3, images, labels, {}},
                                   gpt};
  const char* const wanted[] = {"wanted: 5", "wanted: 1.25", "wanted: 1.25", "wanted: 1",
                                "wanted: 1"};
  const auto compare_times = [&](int count) {
    set_num_threads(count);
    fmt::print(
        "a training step in us, {} thread{}: parameters updated after backward (as PyTorch "
        "does), or in it\n{:<8} {:<5} {:>12} {:>12} {:>12} {:>8} {:>8}\n",
        count, count == 1 ? "" : "s", "model", "", "after", "in backward", "PyTorch", "ratio",
        "ratio");
    Worst worst;
    for (std::size_t i = 0; i < cases.size(); ++i) compare(cases[i], count, wanted[i], worst);
    fmt::print("after backward: ");
    worst.after.print(count);
    fmt::print("in backward: ");
    worst.during.print(count);
    fmt::print("\n");
  };
  compare_times(threads);
  if (both) compare_times(2);
  set_num_threads(threads);
  compare_losses(gpt, text, threads);
  compare_memory(cases, threads);
  show_depth();
  return 0;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) { return tenon::bench::run(argc, argv); }
