#include "trainer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "captured_step.h"
#include "process.h"
#include "progress.h"
#include "saved_run.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/distributed/lone_group.h"
#include "tenon/memory/tag.h"
#include "tenon/nn/loss_scale.h"
#include "tenon/nn/nan_watch.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/loss.h"
#include "tenon/tensor/factories.h"
#include "training_memory.h"

namespace tenon::command {
namespace {

using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t stop_wanted = 0;  // the signal that asked for it

// SIGINT (Ctrl-C), SIGTERM and SIGHUP ask for an end after the step; a second one ends the program
// at once. What the caller ignores stays ignored (nohup). A reader of standard output that goes
// away does not end the run: it is saved, and the exit status says what was lost.
class InterruptGuard {
 public:
  InterruptGuard() {
    stop_wanted = 0;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      previous_[i] = std::signal(kSignals[i], kSignals[i] == SIGPIPE ? SIG_IGN : ask_to_stop);
      if (previous_[i] == SIG_IGN) std::signal(kSignals[i], SIG_IGN);
    }
  }
  ~InterruptGuard() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) std::signal(kSignals[i], previous_[i]);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  static constexpr std::array<int, 4> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

  static void ask_to_stop(int signal) {
    stop_wanted = signal;
    std::signal(signal, SIG_DFL);
  }

  std::array<void (*)(int), kSignals.size()> previous_ = {};
};

// To standard output, at once. A failure does not end the run; the process reports it at its end.
void print_unchecked(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr double kClipNorm = 5;
constexpr const char* kDataHash = "data_hash";
constexpr std::uint64_t kMostCounted = std::uint64_t{1} << 53;  // which a double holds exactly

class Trainer {
 public:
  Trainer(TrainTask& task, const TrainSettings& settings)
      : task_(task),
        settings_(settings),
        memory_(settings.allocator, settings.limit_bytes, settings.device,
                settings.ranks.group == nullptr),
        guard_(settings.device, memory_.meter()),
        generator_(settings.seed) {
    make_model();
    nn::AdamOptions adam;
    adam.learning_rate = base_rate();
    optimizer_ = std::make_unique<nn::Adam>(
        ranks_ != nullptr ? ranks_->parts() : model_->named_parameters(), adam);
    if (may_capture())
      captured_ = std::make_unique<CapturedStep>(
          settings.device,
          [this](const Tensor& input, const Tensor& targets) {
            return memory_.run_in_capture([&] { return step_on_device(input, targets); });
          },
          [this] { take_back_step(); });
    all_steps_ = settings.epochs * task.steps_per_epoch();
    schedule_ = nn::one_cycle_schedule(all_steps_);
    if (!settings.resume_file.empty()) resume();
    const TagGuard tag({"data", nullptr});
    task.make_room(ranks_ != nullptr ? OwnRows(ranks_->own_slices()) : OwnRows());
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  TrainOutcome run() {
    const InterruptGuard interrupts;
    task_.start(step_, all_steps_);
    const std::uint64_t per_epoch = task_.steps_per_epoch();
    while (step_ < all_steps_ && stop() == 0) {
      run_epoch();
      if (step_ % per_epoch != 0) break;  // interrupted in the middle
      if (stop() == 0 || step_ == all_steps_) end_epoch();
    }
    if (step_ < all_steps_) return interrupted();
    if (last_test_.counted == 0) evaluate();  // resumed at the very end
    if (!std::isfinite(last_test_.loss_sum))
      throw Diverged(fmt::format(
          "after step {}: the test loss is {}, and the weights are not saved; a smaller learning "
          "rate may help", step_, last_test_.loss_sum));
    if (settings_.save_at_end) save();
    return outcome();
  }

  RankMemory first_steps() {
    planning_ = true;
    const std::uint64_t steps = std::min<std::uint64_t>(2, all_steps_);
    task_.start(0, steps);
    for (; step_ < steps; ++step_) {
      task_.next();
      memory_.run_step([&] { one_step(); });
    }
    return rank_memory(profile_step(memory_.meter().events()));
  }

  // Reserved after two steps and a test, all of them block by block.
  std::uint64_t need() {
    planning_ = ranks_ != nullptr;
    const std::uint64_t steps = std::min<std::uint64_t>(2, all_steps_);
    task_.start(0, steps);
    for (; step_ < steps; ++step_) {
      task_.next();
      memory_.run_aside([&] { one_step(); });
    }
    model_->eval();
    const NoGradGuard no_grad;
    memory_.run_aside([&] { task_.test(0); });
    return memory_.reserved_peak_bytes();
  }

 private:
  // Ranks fill the model while they divide it.
  void make_model() {
    const auto build = [this] {
      std::shared_ptr<nn::Module> model = task_.build(generator_);
      model->set_path("model");
      return model;
    };
    const TagGuard tag({"parameters", nullptr});
    if (settings_.ranks.group == nullptr) {
      model_ = build();
    } else {
      ranks_ = std::make_unique<RankTraining>(build, settings_.ranks, settings_.device);
      model_ = ranks_->model();
    }
    model_->to(settings_.device);
    if (settings_.checkpoints) task_.use_checkpoints();
    const std::optional<DType> compute = settings_.ranks.compute;
    if (compute) task_.compute_in(*compute);
    if (compute == DType::kF16) loss_scale_.emplace();
  }

  double base_rate() const {
    return settings_.learning_rate > 0 ? settings_.learning_rate : task_.learning_rate();
  }

  void resume() {
    const std::string& path = settings_.resume_file;
    const nn::Metadata metadata = load_run_metadata(path);
    for (const auto& [key, value] : task_.metadata())
      if (metadata_text(metadata, key, path) != value) refuse_data(key);
    const auto saved_hash = metadata.find(kDataHash);
    if (saved_hash != metadata.end() && saved_hash->second != data_hash()) refuse_data(kDataHash);
    const auto number = [&](const char* key) { return metadata_number(metadata, key, path); };
    step_ = number("step");
    if (step_ > all_steps_)
      throw ParseError(path, 0, 0,
                       fmt::format("it was saved after step {} of {}", step_, all_steps_));
    generator_.set_offset(number("generator"));
    epoch_score_ = {metadata_real(metadata, "epoch_loss_sum", path), number("epoch_correct"),
                    number("epoch_counted")};
    if (epoch_score_.loss_sum < 0 || epoch_score_.correct > epoch_score_.counted ||
        epoch_score_.counted > kMostCounted)
      throw ParseError(path, 0, 0,
                       fmt::format("its epoch has a loss of {} and {} of {} correct",
                                   epoch_score_.loss_sum, epoch_score_.correct,
                                   epoch_score_.counted));
    if (ranks_ == nullptr) {
      nn::load_state(path, *model_, optimizer_.get());
    } else {
      ranks_->load(path, *optimizer_);
    }
    if (loss_scale_)
      loss_scale_.emplace(nn::LossScale::State{metadata_real(metadata, "loss_scale", path),
                                               number("loss_scale_steps"),
                                               number("skipped_steps")});
    const std::uint64_t skipped = loss_scale_ ? loss_scale_->state().skipped : 0;
    for (const std::uint64_t updates : optimizer_->updates())
      if (updates + skipped != step_)
        throw ParseError(path, 0, 0,
                         fmt::format("it was saved after step {}, its optimiser after {}", step_,
                                     updates));
  }

  [[noreturn]] void refuse_data(const std::string& key) const {
    throw ParseError(settings_.resume_file, 0, 0,
                     fmt::format("its \"{}\" is not that of these data: resume it with the data "
                                 "that it was started with", key));
  }

  // O(bytes of the data), once.
  const std::string& data_hash() {
    if (data_hash_.empty()) data_hash_ = fmt::format("{:016x}", task_.data_hash());
    return data_hash_;
  }

  void save() {
    nn::Metadata metadata = task_.metadata();
    metadata[kDataHash] = data_hash();
    metadata["step"] = std::to_string(step_);
    metadata["seed"] = std::to_string(settings_.seed);
    metadata["epochs"] = std::to_string(settings_.epochs);
    metadata["learning_rate"] = fmt::format("{:a}", settings_.learning_rate);
    metadata["batch"] = std::to_string(settings_.batch);
    // The epoch so far, its sum to the last bit.
    metadata["epoch_loss_sum"] = fmt::format("{:a}", epoch_score_.loss_sum);
    metadata["epoch_correct"] = std::to_string(epoch_score_.correct);
    metadata["epoch_counted"] = std::to_string(epoch_score_.counted);
    metadata["generator"] = std::to_string(generator_.offset());
    metadata["precision"] = precision_name(settings_.ranks.compute);
    if (loss_scale_) {
      metadata["loss_scale"] = fmt::format("{:a}", loss_scale_->value());
      metadata["loss_scale_steps"] = std::to_string(loss_scale_->state().good_steps);
      metadata["skipped_steps"] = std::to_string(loss_scale_->state().skipped);
    }
    if (ranks_ == nullptr)
      nn::save_state(settings_.save_file, *model_, optimizer_.get(), metadata);
    else
      ranks_->save(settings_.save_file, step_, *optimizer_, metadata);
  }

  // The signal that asks for an end; ranks agree on it after each step.
  int stop() const { return ranks_ != nullptr ? ranks_->stop_signal() : stop_wanted; }


  void run_epoch() {
    const std::uint64_t per_epoch = task_.steps_per_epoch();
    const std::uint64_t end = (step_ / per_epoch + 1) * per_epoch;
    if (step_ % per_epoch == 0) epoch_score_ = {};
    const Clock::time_point start = Clock::now();
    std::uint64_t epoch_samples = 0;
    model_->train();
    while (step_ < end && stop() == 0) {
      task_.next();
      StepNumbers numbers;
      if (!run_captured(&numbers)) memory_.run_step([&] { numbers = one_step(); });
      ++step_;
      epoch_samples += numbers.samples;
      epoch_score_.add(numbers.score);
      if (settings_.save_every > 0 && step_ % settings_.save_every == 0) save();
      progress_.show([&] {
        return fmt::format(
            "epoch {}/{} {} loss {:.4f}  accuracy {:.2f} %  {:.0f} samples/s  live {}  reserved {}",
            (step_ - 1) / per_epoch + 1, settings_.epochs,
            progress_bar(step_ - (end - per_epoch), per_epoch),
            epoch_score_.loss_sum / static_cast<double>(epoch_score_.counted),
            100 * epoch_score_.accuracy(),
            static_cast<double>(epoch_samples) / seconds_since(start),
            format_byte_size(memory_.meter().live_bytes()),
            format_byte_size(memory_.reserved_bytes()));
      });
    }
    progress_.clear();
    samples_ += epoch_samples;
    seconds_ += seconds_since(start);
  }

  StepNumbers gradients() {
    if (ranks_ != nullptr)
      return ranks_->run([&](Slice slice) { return forward_and_backward(slice); }, stop_wanted);
    const BatchResult result = forward_and_backward({});
    return {result.score, result.samples};
  }

  // Forward, backward, update. What it allocates is gone when it ends.
  StepNumbers one_step() {
    const StepNumbers numbers = gradients();
    const double scale = loss_scale();
    const Tensor device_norm =
        on_device() ? nn::device_gradient_norm(optimizer_->parameters()) : Tensor();
    const double norm = (on_device()         ? device_norm.item<double>()
                         : ranks_ != nullptr ? ranks_->gradient_norm()
                                             : nn::gradient_norm(optimizer_->parameters())) /
                        scale;
    const double loss = numbers.score.loss_sum / static_cast<double>(numbers.score.counted);
    const bool finite = planning_ || std::isfinite(norm);
    const bool goes_on = loss_scale_ ? loss_scale_->update(finite) : finite;
    if (!goes_on || (!planning_ && !std::isfinite(loss))) explain(loss);
    optimizer_->set_learning_rate(base_rate() * schedule_(step_));
    if (on_device())
      optimizer_->step(nn::device_clip_factor(device_norm, kClipNorm));
    else if (finite)
      optimizer_->step(nn::clip_factor(norm, kClipNorm) / scale);
    if (ranks_ != nullptr) ranks_->after_update();
    optimizer_->zero_grad();
    return numbers;
  }

  // The device clips: alike whether a step is captured or not.
  bool on_device() const {
    return settings_.device.type == DeviceType::kVulkan && ranks_ == nullptr;
  }
  // A limit is on the policy, which a capture does not use, and `plan` has places for steps that
  // are not captured.
  bool may_capture() const {
    return on_device() && settings_.limit_bytes == 0 && memory_.policy_name() != "plan" &&
           vulkan_backend(settings_.device.index).abilities().integers;
  }

  // The same step without the host's part, which follows when it has run.
  StepTensors step_on_device(const Tensor& input, const Tensor& targets) {
    StepTensors of;
    Tensor loss;
    {
      const TagGuard tag({"forward", nullptr});
      const Tensor logits = task_.logits_of(input);
      loss = ops::cross_entropy(logits, targets);
      of.logits = logits.detach();
      of.loss = loss.detach();
    }
    memory_.meter().mark(StepEvent::Kind::kForwardEnds);
    {
      const TagGuard tag({"backward", nullptr});
      autograd::backward(loss);
    }
    memory_.meter().mark(StepEvent::Kind::kBackwardEnds);
    of.gradient_norm = nn::device_gradient_norm(optimizer_->parameters());
    // A loss that is no finite number makes the factor NaN: the weights stay for explain().
    const Tensor guarded = ops::add(of.gradient_norm, ops::mul(of.loss, 0.0));
    optimizer_->step(nn::device_clip_factor(guarded, kClipNorm));
    optimizer_->zero_grad();
    return of;
  }

  void take_back_step() {
    generator_.set_offset(drawn_before_step_);
    optimizer_->set_updates(updates_before_step_);
    optimizer_->zero_grad();
  }

  // False: the step is to be computed anew, as if this had not been called.
  bool run_captured(StepNumbers* numbers) {
    if (captured_ == nullptr) return false;
    const ExampleBatch batch = task_.batch({});
    drawn_before_step_ = generator_.offset();
    updates_before_step_ = optimizer_->updates();
    optimizer_->set_learning_rate(base_rate() * schedule_(step_));
    const bool has_run = memory_.run_captured([&] {
      if (!captured_->run(batch)) return false;
      memory_.set_captured_bytes(captured_->reserved_bytes());
      return true;
    });
    if (!has_run) return false;
    const StepTensors& result = captured_->result();
    numbers->score = score_of(result.logits, batch.targets);
    const double loss = result.loss.item<double>();
    numbers->score.loss_sum = loss * static_cast<double>(numbers->score.counted);
    numbers->samples = static_cast<std::uint64_t>(batch.rows.counted);
    if (!std::isfinite(loss) || !std::isfinite(result.gradient_norm.item<double>())) explain(loss);
    return true;
  }

  BatchResult forward_and_backward(Slice slice) {
    BatchResult result;
    {
      const TagGuard tag({"forward", nullptr});
      result = task_.run(slice);
    }
    memory_.meter().mark(StepEvent::Kind::kForwardEnds);
    {
      const TagGuard tag({"backward", nullptr});
      const double factor = (slice.count == 1 ? 1 : result.share) * loss_scale();
      if (factor == 1)
        autograd::backward(result.loss);
      else
        autograd::backward(result.loss, full(result.loss.sizes(), factor, result.loss.dtype(),
                                             result.loss.device()));
    }
    memory_.meter().mark(StepEvent::Kind::kBackwardEnds);
    result.score.loss_sum = result.loss.item<double>() * static_cast<double>(result.score.counted);
    return result;
  }

  double loss_scale() const { return loss_scale_ ? loss_scale_->value() : 1; }

  // Runs the step again under a watch.
  [[noreturn]] void explain(double loss) {
    progress_.clear();
    optimizer_->zero_grad();
    std::string cause = "no operator made one when the step was run again";
    if (ranks_ != nullptr && settings_.ranks.group->size() > 1) {
      cause = "run it in one process to see which operator made it";
    } else {
      const nn::NanWatch watch;
      const autograd::AnomalyMode anomaly;  // throws where a derivative makes one
      try {
        gradients();
      } catch (const InvalidArgument& error) {
        cause = error.what();  // without the stack: the operator's call is Tenon's own
        cause.resize(std::min(cause.size(), cause.find(". The forward call:")));
      }
      if (watch.finding()) cause = watch.finding()->text();
    }
    optimizer_->zero_grad();
    throw Diverged(fmt::format(
        "step {}: {}: {}; a smaller batch or learning rate, or other data, may help", step_ + 1,
        std::isfinite(loss) ? "a gradient is no finite number"
                            : fmt::format("the loss is {}", loss),
        cause));
  }

  void evaluate() {
    last_test_ = {};
    model_->eval();
    const NoGradGuard no_grad;
    const auto test = [&](std::uint64_t batch) {
      Score score;
      memory_.run_aside([&] {
        const TagGuard tag({"test", nullptr});
        score = task_.test(batch);
      });
      return score;
    };
    if (ranks_ != nullptr) {
      last_test_ = ranks_->test(task_.test_batches(), test);
      return;
    }
    for (std::uint64_t i = 0; i < task_.test_batches(); ++i) last_test_.add(test(i));
  }

  void end_epoch() {
    evaluate();
    const double train_loss = epoch_score_.loss_sum / static_cast<double>(epoch_score_.counted);
    final_loss_ = train_loss;
    if (settings_.quiet) return;
    print_unchecked(fmt::format(
        "epoch {}/{}: loss {:.4f}, accuracy {:.2f} %; test loss {:.4f}, accuracy {:.2f} %\n",
        step_ / task_.steps_per_epoch(), settings_.epochs, train_loss,
        100 * epoch_score_.accuracy(),
        last_test_.loss_sum / static_cast<double>(last_test_.counted),
        100 * last_test_.accuracy()));
  }

  TrainOutcome interrupted() {
    save();
    if (settings_.ranks.reports())
      tell(fmt::format("interrupted after step {} of {}; saved as {}", step_,
                       all_steps_, settings_.save_file));
    TrainOutcome result = outcome();
    result.stop_signal = stop();
    return result;
  }

  TrainOutcome outcome() {
    TrainOutcome result;
    result.steps = step_;
    result.test_accuracy = last_test_.accuracy();
    result.test_loss =
        last_test_.counted == 0 ? 0 : last_test_.loss_sum / static_cast<double>(last_test_.counted);
    result.final_loss = final_loss_;
    result.samples_per_second = seconds_ > 0 ? static_cast<double>(samples_) / seconds_ : 0;
    result.parameter_bytes = static_cast<std::uint64_t>(model_->parameter_count()) * sizeof(float);
    result.peak_bytes = memory_.meter().peak_bytes();
    result.reserved_peak_bytes = memory_.reserved_peak_bytes();
    result.driver_calls_after_step_2 = memory_.late_driver_calls();
    result.layout_hash = memory_.meter().layout_hash();
    result.events = memory_.meter().take_events();
    if (ranks_ != nullptr) {
      result.weights_hash = ranks_->weights_hash();
      result.ranks = ranks_->gather(rank_memory(profile_step(result.events)));
    } else {
      result.weights_hash = nn::state_hash(model_->named_state());
    }
    result.has_arena = memory_.has_arena();
    result.captured_bytes = memory_.captured_bytes();
    result.checkpoints = settings_.checkpoints;
    if (loss_scale_) result.loss_scale = loss_scale_->state();
    result.allocations_per_step = memory_.allocations_per_step();
    result.predicted_bytes = memory_.predicted_bytes();
    result.arena_bytes = memory_.arena_bytes();
    result.arena_chunks = memory_.arena_chunks();
    result.full_steps = memory_.full_steps();
    result.smaller_steps = memory_.smaller_steps();
    result.larger_steps = memory_.larger_steps();
    result.plan_report = memory_.plan_report();
    return result;
  }

  RankMemory rank_memory(const StepProfile& profile) {
    return ranks_->memory(profile, memory_.meter().peak_bytes(), memory_.reserved_peak_bytes());
  }

  // The task's tensors end before their memory does, also where the constructor throws.
  struct TaskEnd {
    TrainTask& task;
    ~TaskEnd() { task.finish(); }
  };

  TrainTask& task_;
  const TrainSettings settings_;
  TrainingMemory memory_;
  const AllocatorGuard guard_;
  const TaskEnd end_{task_};
  Generator generator_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<RankTraining> ranks_;  // null: trains alone
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<CapturedStep> captured_;  // null: each step is computed anew
  std::uint64_t drawn_before_step_ = 0;     // with the next one, what take_back_step goes back to
  std::vector<std::uint64_t> updates_before_step_;
  nn::Schedule schedule_;
  std::optional<nn::LossScale> loss_scale_;  // with f16
  std::string data_hash_;  // empty: not computed yet
  std::uint64_t all_steps_ = 0;
  std::uint64_t step_ = 0;  // done
  Score epoch_score_, last_test_;
  bool planning_ = false;  // other ranks are not there: values mean nothing
  double final_loss_ = 0;
  std::uint64_t samples_ = 0;
  double seconds_ = 0;
  ProgressLine progress_;
};

}  // namespace

std::uint64_t measure_need(TrainTask& task, TrainSettings settings) {
  settings.limit_bytes = 0;
  settings.resume_file.clear();
  if (settings.ranks.group != nullptr)  // other ranks go on, or have failed as well
    settings.ranks.group = std::make_shared<distributed::LoneGroup>(settings.ranks.group->rank(),
                                                                    settings.ranks.group->size());
  return Trainer(task, settings).need();
}

RankMemory measure_rank(TrainTask& task, const TrainSettings& settings) {
  return Trainer(task, settings).first_steps();
}

TrainOutcome train(TrainTask& task, const TrainSettings& settings) {
  return Trainer(task, settings).run();
}

}  // namespace tenon::command
