// tenon train: real models in Tenon's memory.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "launcher.h"
#include "process.h"
#include "ranks.h"
#include "saved_run.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/file_writer.h"
#include "tenon/distributed/checkpoint.h"
#include "tenon/distributed/lone_group.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/csv.h"
#include "train_report.h"
#include "trainer.h"
#include "training_commands.h"
#include "training_memory.h"

namespace tenon::command {
namespace {

constexpr int kMostEpochs = 1'000'000;
constexpr int kMostBatch = 65'536;
constexpr int kMostRanks = 4096;
constexpr const char* kPrecisions[] = {"f32", "bf16", "f16"};
constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist";

constexpr const char* kHelp = R"(
Each step runs in a scope: its temporaries are in an arena, which frees them together at the end of
the step. The first step predicts the arena's size. After the second step, tensors need neither a
driver call nor malloc. With --memory-limit, the policy allocates each block instead. If that is not
enough, backward computes activations again. If that is not enough either, the command prints the
missing bytes. (The limit does not include the data set.)

The report at the end has the peak by use and by layer, and the memory that each policy needs for
the recorded steps. Two runs with one seed give the same weights, losses and memory layout, bit for
bit; their hashes are equal.

mpirun -n 4 tenon train ... divides the run among 4 processes, called ranks. It needs a build with
TENON_MPI. --shard says what is divided. --slices S, a power of two, cuts each batch into S parts
and adds their gradients in one fixed order: 1, 2, 4, ... S ranks give the same weights, bit for
bit.
--plan-only --ranks 4 prints the peak memory of each of 4 ranks, without MPI. Ranks save a folder of
safetensors files with an index; --resume accepts it with any number of ranks.

--precision bf16 or f16 runs forward and backward in 16 bit, on the cpu, as a run of one rank or of
several: it saves a folder, too. f16 multiplies the loss by a scale, and skips steps whose gradients
are not finite.

--json prints one object: test_accuracy, final_loss, samples_per_second, peak_bytes,
reserved_peak_bytes, driver_calls_after_step_2, weights_hash, layout_hash. With --precision f16 also
skipped_steps and loss_scale. Where the device has no kernel for an operator also host_calls: by
operator, the calls and copied_bytes of the host.

Ctrl-C, SIGTERM and SIGHUP save the run after the current step and print how to resume it. A resumed
run ends with the same weights as a run without the interruption.

Exit status: 0. 1 for a limit that is too small, a loss that is no number, a file that cannot be
written, or a bug. 2 for bad usage or data that cannot be read. 128 + the signal when interrupted
and saved (130 for Ctrl-C, 143 for SIGTERM).)";

struct TrainArguments {
  ImageTaskOptions image;
  TextTaskOptions text;
  TrainSettings settings;
  std::string device = "cpu";
  std::string limit;
  std::string record_file;
  std::string save_file;
  bool json = false;
  int shard = -1;  // not given
  std::uint64_t slices = 0;
  bool no_prefetch = false;
  std::string precision = "f32";
  bool plan_only = false;
  int plan_ranks = 1;
};

// The options that both tasks have.
void add_common(CommandLine& app, TrainArguments& a) {
  TrainSettings& s = a.settings;
  app.footer(kHelp);
  app.add_option("--epochs", s.epochs, "Passes over the training data")
      .show_default()
      .between(1, kMostEpochs);
  app.add_option("--batch", s.batch, "Examples in a step")
      .show_default()
      .between(1, kMostBatch);
  app.add_option("--learning-rate", s.learning_rate,
                 "The highest value; 0: a default for the model")
      .show_default()
      .not_negative();
  app.add_option("--seed", s.seed,
                 "Seed of the weights and of the order of examples").show_default();
  app.add_option("--device", a.device, "cpu, or a Vulkan device")
      .show_default();
  app.add_option("--allocator", s.allocator, "The policy (see tenon policies)").show_default();
  app.add_option("--memory-limit", a.limit,
                 "The most memory that the policy may reserve, like 64MiB");
  app.add_option("--record", a.record_file,
                 "Write the allocations of the first two steps as a trace, .csv or .csv.zst");
  app.add_option("--save", a.save_file,
                 "The file of the saved run, written at the end or when interrupted");
  app.add_option("--save-every", s.save_every,
                 "Also save after every so many steps; 0: only at the end")
      .show_default();
  app.add_option("--resume", s.resume_file, "Continue a saved run");
  app.add_option("--shard", a.shard,
                 "What is divided among the ranks: 0 each batch, 1 also the optimiser's state, 2 "
                 "also the gradients, 3 also the parameters")
      .between(0, 3);
  app.add_option("--slices", a.slices,
                 "Parts of each batch, a power of two; default: one for each rank")
      .between(1, kMostBatch);
  app.add_flag("--no-prefetch", a.no_prefetch,
               "With --shard 3: gather each layer only when it is used, which needs less memory");
  app.add_option("--precision", a.precision,
                 "What forward and backward compute in: f32, bf16 or f16. With the latter two, the "
                 "optimiser keeps f32 weights")
      .show_default()
      .one_of({std::begin(kPrecisions), std::end(kPrecisions)});
  app.add_flag("--plan-only", a.plan_only,
               "Print the peak memory of each rank; do not train. Without mpirun");
  app.add_option("--ranks", a.plan_ranks, "The number of ranks for --plan-only")
      .show_default()
      .between(1, kMostRanks);
  app.add_flag("--json", a.json, "Print only one JSON object, at the end");
}

// A resumed run is the run that was saved: what it was started with comes from the file.
void take_from_file(TrainArguments& a, const CommandLine& app, const std::string& task) {
  const std::string& path = a.settings.resume_file;
  if (path.empty()) return;
  const nn::Metadata metadata = load_run_metadata(path);
  if (metadata_text(metadata, "task", path) != task)
    throw ParseError(
        path, 0, 0,
        fmt::format("it is a run of another kind, \"{}\"", metadata_text(metadata, "task", path)));
  const auto check_same = [&](const char* option, const std::string& given,
                              const std::string& saved) {
    if (app.was_given(option) && given != saved)
      throw InvalidArgument(fmt::format("{} {}: {} was saved with {}; leave the option out", option,
                                        given, path, saved));
  };
  const auto number = [&](const char* key) { return metadata_number(metadata, key, path); };
  const auto number_to = [&](const char* key, std::uint64_t most) {
    const std::uint64_t value = number(key);
    if (value < 1 || value > most)
      throw ParseError(path, 0, 0,
                       fmt::format("its \"{}\" is {}; it may be 1 to {}", key, value, most));
    return value;
  };
  check_same("--epochs", std::to_string(a.settings.epochs), std::to_string(number("epochs")));
  check_same("--batch", std::to_string(a.settings.batch), std::to_string(number("batch")));
  check_same("--seed", std::to_string(a.settings.seed), std::to_string(number("seed")));
  const auto precision = metadata.find("precision");  // older runs have none
  const std::string saved = precision == metadata.end() ? "f32" : precision->second;
  if (std::find(std::begin(kPrecisions), std::end(kPrecisions), saved) == std::end(kPrecisions))
    throw ParseError(path, 0, 0, fmt::format("its \"precision\" is \"{}\"", saved));
  check_same("--precision", a.precision, saved);
  a.settings.ranks.compute = precision_of(saved);
  a.settings.epochs = number_to("epochs", kMostEpochs);
  a.settings.learning_rate = metadata_real(metadata, "learning_rate", path);
  if (a.settings.learning_rate < 0)
    throw ParseError(path, 0, 0, fmt::format("its \"learning_rate\" is \"{}\"",
                                             metadata_text(metadata, "learning_rate", path)));
  a.settings.batch = static_cast<std::int64_t>(number_to("batch", kMostBatch));
  a.settings.seed = number("seed");
  if (task == "images") {
    check_same("--model", a.image.model, metadata_text(metadata, "model", path));
    a.image.model = metadata_text(metadata, "model", path);
  } else {
    a.text.gpt = saved_gpt_options(metadata, path, count_run_parameters(path));
  }
}

// Trains as the settings say; where that does not fit into the limit, with checkpoints.
TrainOutcome train_within(TrainTask& task, TrainSettings settings) {
  try {
    return train(task, settings);
  } catch (const OutOfMemory& error) {
    if (settings.limit_bytes == 0) throw;
    tell(fmt::format("{} is too little to keep all activations: trying again with checkpoints",
                     format_byte_size(settings.limit_bytes)));
  }
  TrainSettings with_checkpoints = settings;
  with_checkpoints.checkpoints = true;
  try {
    return train(task, with_checkpoints);
  } catch (const OutOfMemory&) {
    // Checkpoints are no gain where activations are small beside what is computed again at a time.
    const std::uint64_t kept = measure_need(task, settings);
    const std::uint64_t again = measure_need(task, with_checkpoints);
    const std::uint64_t needed = std::min(kept, again);
    throw std::runtime_error(fmt::format(
        "--memory-limit {}: this run needs {} under {} ({} with checkpoints), {} more; a smaller "
        "--batch needs less{}",
        format_byte_size(settings.limit_bytes), format_byte_size(kept), settings.allocator,
        format_byte_size(again), format_byte_size(needed - std::min(needed, settings.limit_bytes)),
        settings.allocator == "system" ? ""
                                       : ", and so may --allocator system, which rounds least"));
  }
}

// Trains this rank's part.
TrainOutcome train_divided(TrainTask& task, const TrainSettings& settings) {
  try {
    return train(task, settings);
  } catch (const OutOfMemory& error) {
    constexpr const char* kRemedy =
        "more ranks, a smaller --batch or a higher --shard need less memory on each rank";
    if (settings.limit_bytes == 0)
      throw std::runtime_error(fmt::format("{}; {}", error.what(), kRemedy));
    const distributed::ProcessGroup& group = *settings.ranks.group;
    if (group.size() > 1)  // ranks that wait for this one may end all before it is measured
      tell(fmt::format("rank {}: --memory-limit {} is too little", group.rank(),
                       format_byte_size(settings.limit_bytes)));
    const std::uint64_t needed = measure_need(task, settings);
    throw std::runtime_error(fmt::format(
        "--memory-limit {}: this rank needs {} under {}, {} more; {}; --plan-only --ranks {} "
        "instead of --memory-limit prints what each rank needs",
        format_byte_size(settings.limit_bytes), format_byte_size(needed), settings.allocator,
        format_byte_size(needed - std::min(needed, settings.limit_bytes)), kRemedy, group.size()));
  }
}

// Ranks save into a folder of its own, where files are replaced and removed.
void require_other_folder(const std::string& folder, const std::vector<std::string>& read) {
  for (const std::string& file : read) {
    std::error_code missing;  // then they are not the same
    const std::filesystem::path parent = std::filesystem::absolute(file).parent_path();
    if (std::filesystem::equivalent(folder, parent, missing))
      throw InvalidArgument(
          fmt::format("--save {}: {} is there, which is read: save into another folder", folder,
                      file));
  }
}

// What the run writes must not be what it reads, nor both one file. (A run may be saved as the file
// that it was resumed from.) `read`: the data.
void check_outputs(const TrainArguments& a, std::vector<std::string> read) {
  require_other_file(a.settings.save_file, read);
  if (a.settings.ranks.group != nullptr) require_other_folder(a.settings.save_file, read);
  const std::string& record = a.record_file;
  if (record.empty()) return;
  read.push_back(a.settings.resume_file);
  require_other_file(record, read);
  if (!record.ends_with(".csv") && !record.ends_with(".csv.zst"))
    throw InvalidArgument(
        fmt::format("--record {}: a trace's name ends with .csv or .csv.zst", record));
  namespace fs = std::filesystem;
  if (fs::weakly_canonical(record) == fs::weakly_canonical(a.settings.save_file))
    throw InvalidArgument(fmt::format("--record and --save both name {}", record));
}

// --ranks is for --plan-only, which trains and writes nothing.
void check_plan_only(const TrainArguments& a, const CommandLine& app) {
  if (!a.plan_only && app.was_given("--ranks"))
    throw InvalidArgument("--ranks is for --plan-only; to train on ranks: mpirun -n RANKS tenon "
                          "train ...");
  for (const char* option : {"--save", "--record"})
    if (a.plan_only && app.was_given(option))
      throw InvalidArgument(fmt::format("--plan-only writes no file: leave {} out", option));
}

// Joins the ranks where the run is divided. A run that is not leaves settings.ranks as it was.
void join(TrainArguments& a) {
  const std::string& resumed = a.settings.resume_file;
  const bool of_ranks = !resumed.empty() && distributed::is_checkpoint(resumed);
  const std::optional<DType> compute = precision_of(a.precision);
  const bool divided =
      a.shard >= 0 || a.slices > 0 || a.plan_only || of_ranks || compute || launched_ranks() > 1;
  if (!divided) return;
  if (a.plan_only && launched_ranks() > 1)
    throw InvalidArgument("--plan-only plans for all ranks in one process: leave mpirun out");
  RankSettings& ranks = a.settings.ranks;
  ranks.shard = static_cast<distributed::Shard>(std::max(0, a.shard));
  ranks.prefetch = !a.no_prefetch;
  ranks.compute = compute;
  ranks.group = a.plan_only ? std::make_shared<distributed::LoneGroup>(0, a.plan_ranks)
                            : join_ranks();
  if (compute && a.device != "cpu")
    throw InvalidArgument(
        fmt::format("--precision {} computes on the cpu: leave --device out", a.precision));
  if (!resumed.empty() && !of_ranks)
    throw InvalidArgument(fmt::format("--resume {}: a divided run goes on with a folder that one "
                                      "has saved, with {} in it",
                                      resumed, distributed::kIndexName));
  const auto size = static_cast<std::uint64_t>(ranks.group->size());
  ranks.slices = a.slices > 0 ? a.slices : size;
  if (a.slices > 0 && (!std::has_single_bit(a.slices) || a.slices % size != 0))
    throw InvalidArgument(fmt::format(
        "--slices {} for {} rank{}: {}", a.slices, size, size == 1 ? "" : "s",
        std::has_single_bit(size) ? fmt::format("give a power of two, {} or more", size)
                                  : "slices need 1, 2, 4, 8 or another power of two of ranks"));
}

// Every rank must train the same run; throws on all of them where one does not.
void compare_ranks(const TrainTask& task, const TrainArguments& a) {
  const TrainSettings& s = a.settings;
  if (s.ranks.slices > static_cast<std::uint64_t>(s.batch))
    throw InvalidArgument(fmt::format("--batch {}: {} slices need as many examples at least; give "
                                      "a larger batch or fewer ranks",
                                      s.batch, s.ranks.slices));
  std::vector<std::pair<std::string, std::string>> setup = {
      {"the model and its data", task.title()}};
  for (const auto& [key, value] : task.metadata()) setup.push_back({"\"" + key + "\"", value});
  const auto add = [&](const char* name, const auto& value) {
    setup.push_back({name, fmt::format("{}", value)});
  };
  add("the data's hash", fmt::format("{:016x}", task.data_hash()));
  add("--device", a.device);
  add("--allocator", s.allocator);
  add("--seed", s.seed);
  add("--epochs", s.epochs);
  add("--batch", s.batch);
  add("--learning-rate", s.learning_rate);
  add("--shard", static_cast<int>(s.ranks.shard));
  add("--slices", s.ranks.slices);
  add("--precision", precision_name(s.ranks.compute));
  add("--no-prefetch", s.ranks.prefetch ? "not given" : "given");
  add("--save-every", s.save_every);
  add("--memory-limit", s.limit_bytes);
  add("--resume", s.resume_file);
  add("--save", s.save_file);
  require_same(*s.ranks.group, "train", std::move(setup));
}

// --plan-only: one rank after another, alone.
int run_plan(TrainTask& task, TrainArguments& a) {
  std::vector<RankMemory> all;
  a.settings.resume_file.clear();
  for (int rank = 0; rank < a.plan_ranks; ++rank) {
    a.settings.ranks.group = std::make_shared<distributed::LoneGroup>(rank, a.plan_ranks);
    all.push_back(measure_rank(task, a.settings));
  }
  fmt::print("{}", a.json ? ranks_json(all).dump(2) + "\n" : ranks_report(all));
  return kSuccess;
}

int run_train(TrainTask& task, TrainArguments& a, const std::string& resume_command) {
  const RankSettings& ranks = a.settings.ranks;
  a.settings.quiet = a.json || !ranks.reports();
  if (!a.limit.empty()) {
    a.settings.limit_bytes = parse_size("--memory-limit", a.limit);
  }
  read_option("--allocator", [&] { find_policy(a.settings.allocator); });
  if (ranks.group != nullptr) compare_ranks(task, a);
  if (!a.settings.quiet) fmt::print("{}, seed {}\n", task.title(), a.settings.seed);
  if (a.plan_only) return run_plan(task, a);
  std::unique_ptr<distributed::CheckpointFolder> folder;      // ours until the end
  if (a.settings.save_at_end || a.settings.save_every > 0) {  // before hours of work
    if (ranks.group == nullptr)
      FileWriter::check(a.settings.save_file);
    else
      folder = std::make_unique<distributed::CheckpointFolder>(a.settings.save_file, *ranks.group);
  }
  if (!a.record_file.empty()) FileWriter::check(a.record_file);
  const TrainOutcome outcome = [&] {
    try {
      return ranks.group == nullptr ? train_within(task, a.settings)
                                    : train_divided(task, a.settings);
    } catch (const DeviceError& error) {  // as when a device is lost
      if (a.settings.save_every == 0 || !std::filesystem::exists(a.settings.save_file)) throw;
      throw std::runtime_error(fmt::format("{}; to go on from the last save: {} --resume {}",
                                           error.what(), resume_command, a.settings.save_file));
    }
  }();
  if (outcome.stop_signal != 0) {
    if (ranks.reports())
      tell(fmt::format("to go on: {} --resume {}", resume_command,
                       a.settings.save_file));
    return kSignalled + outcome.stop_signal;
  }
  if (!ranks.reports()) return kSuccess;
  if (!a.record_file.empty())
    write_csv(trace_of(outcome.events, std::filesystem::path(a.record_file).stem().string()),
              a.record_file);
  fmt::print("{}", a.json ? train_json(outcome) : train_report(outcome, a.settings.allocator));
  if (!a.json && a.settings.save_at_end) fmt::print("\nsaved as {}\n", a.settings.save_file);
  return kSuccess;
}

// Where a run is saved without --save.
std::string save_place(const TrainArguments& a, const std::string& name) {
  if (!a.save_file.empty()) return a.save_file;
  return a.settings.ranks.group == nullptr ? name + ".safetensors" : name;
}

}  // namespace

std::vector<Subcommand> add_train(CommandLine& app) {
  CommandLine& train_app = app.add_subcommand(kTrain.name, kTrain.about);
  train_app.require_subcommand();
  train_app.footer("See \"tenon train fashion-mnist --help\".");

  const auto image = std::make_shared<TrainArguments>();
  CommandLine& images =
      train_app.add_subcommand("fashion-mnist", "Train a classifier of images in IDX files");
  images.add_option("--data", image->image.folder, "The folder with the four IDX files")
      .set_default(kFashionMnist);
  images.add_option("--model", image->image.model, "mlp or cnn")
      .show_default()
      .one_of({"mlp", "cnn"});
  add_common(images, *image);

  const auto text = std::make_shared<TrainArguments>();
  CommandLine& texts = train_app.add_subcommand("text", "Train a character GPT on a text");
  texts.add_option("FILE", text->text.file, "The text").required();
  texts.add_option("--length", text->text.gpt.length, "Length of the context in characters")
      .show_default()
      .between(1, 4096);
  texts.add_option("--layers", text->text.gpt.layers, "Transformer blocks")
      .show_default()
      .between(1, 128);
  texts.add_option("--width", text->text.gpt.width, "Features of a character")
      .show_default()
      .between(1, 8192);
  texts.add_option("--heads", text->text.gpt.heads, "Attention heads; they divide the width")
      .show_default()
      .between(1, 256);
  text->settings.batch = 32;
  add_common(texts, *text);

  const auto run_images = [image, &images] {
    check_plan_only(*image, images);
    join(*image);
    take_from_file(*image, images, "images");
    image->settings.save_at_end = !image->save_file.empty();
    image->settings.save_file = save_place(*image, "tenon-fashion-mnist");
    std::vector<std::string> read;
    std::error_code missing;  // then making the task says so
    for (const auto& file : std::filesystem::directory_iterator(image->image.folder, missing))
      read.push_back(file.path());
    check_outputs(*image, std::move(read));
    image->image.batch = image->settings.batch;
    image->image.seed = image->settings.seed;
    image->image.device = image->settings.device = parse_model_device(image->device);
    const auto task = make_image_task(image->image);
    return run_train(*task, *image,
                     fmt::format("tenon train fashion-mnist --data {}", image->image.folder));
  };
  const auto run_text = [text, &texts] {
    check_plan_only(*text, texts);
    join(*text);
    take_from_file(*text, texts, "text");
    text->settings.save_at_end = true;  // tenon generate wants it
    text->settings.save_file = save_place(*text, "tenon-text");
    check_outputs(*text, {text->text.file});
    text->text.batch = text->settings.batch;
    text->text.seed = text->settings.seed;
    text->text.device = text->settings.device = parse_model_device(text->device);
    const nn::GptOptions& gpt = text->text.gpt;
    if (gpt.width % gpt.heads != 0)
      throw InvalidArgument(fmt::format("--heads {}: the number must divide --width {}", gpt.heads,
                                        gpt.width));
    const auto task = make_text_task(text->text);
    return run_train(*task, *text, fmt::format("tenon train text {}", text->text.file));
  };
  return {{&images, run_images}, {&texts, run_text}};
}

}  // namespace tenon::command
