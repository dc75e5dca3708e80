// tenon train over mpirun, as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "distributed/launched.h"
#include "support/command.h"
#include "support/temporary.h"
#include "support/vulkan.h"
#include "tenon/base/version.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using Json = nlohmann::json;

class RanksTest : public ::testing::Test {
 protected:
  RanksTest() {
    std::ofstream text(path("text"));
    for (int i = 0; i < 3000; ++i) text << "the rank " << (i * i) % 97 << " holds ";
  }

  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  // The command's arguments; `more` goes behind them.
  std::string unsaved(const std::string& more) const {
    return "train text " + path("text") + " --length 16 --layers 2 --width 32 --batch 64 --json " +
           more;
  }
  std::string text(const std::string& more, const std::string& save = "run") const {
    return unsaved("--save " + path(save) + " " + more);
  }
  // As `ranks` processes, one thread each; `before`: variables.
  static Outcome launch(int ranks, const std::string& arguments, const std::string& before = "") {
    return testing::tenon_command(
        arguments, before + " TENON_NUM_THREADS=1 " TENON_LAUNCH " -n " + std::to_string(ranks));
  }
  static Json json_of(const Outcome& run) {
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse(run.out.substr(std::min(run.out.size(), run.out.find('{'))), nullptr, false);
  }

  const testing::TemporaryFolder folder_;
};

std::size_t count(const std::string& text, const std::string& words) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos; at += words.size())
    ++found;
  return found;
}

// When the file was written; the first of all times where there is none.
std::filesystem::file_time_type time_of(const std::string& file) {
  std::error_code missing;
  const auto time = std::filesystem::last_write_time(file, missing);
  return missing ? std::filesystem::file_time_type::min() : time;
}

// Runs four ranks in the background and sends one of them the signal once they have written a
// checkpoint. The launcher gets a minute: Open MPI's may not return (docs/limits.md).
struct Ended {
  double seconds = 0;
  std::string err;  // and standard output, where MPICH's launcher names the rank
};
Ended strike(const std::string& arguments, const std::string& index, int signal, int rank) {
  const testing::TemporaryFile err(".err");
  const std::string mark = std::to_string(::getpid());
  const auto before = time_of(index);
  const std::string line = "TENON_TEST_RUN=" + mark +
                           " TENON_NUM_THREADS=1 timeout -s KILL 60 " TENON_LAUNCH
                           " -n 4 " TENON_COMMAND " " + arguments + " >" + err.path() + " 2>&1";
  std::thread launcher([&] { static_cast<void>(std::system(line.c_str())); });
  std::vector<pid_t> ranks;
  for (int i = 0; i < 600 && (ranks.size() < 4 || time_of(index) == before); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ranks = testing::ranks_of(mark);
  }
  const auto start = std::chrono::steady_clock::now();
  if (ranks.size() == 4) ::kill(ranks[static_cast<std::size_t>(rank)], signal);
  launcher.join();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          err.contents()};
}

TEST_F(RanksTest, WeightsDoNotDependOnTheNumberOfRanks) {
  const Json one = json_of(launch(1, text("--epochs 1 --slices 4")));
  const Json plain = json_of(launch(1, text("--epochs 1", "plain")));
  EXPECT_NEAR(plain["final_loss"], one["final_loss"], 1e-4);
  for (const int ranks : {2, 4})
    for (const int shard : {0, 1, 2, 3}) {
      const std::string how = " --shard " + std::to_string(shard);
      const Json many = json_of(launch(ranks, text("--epochs 1 --slices 4" + how)));
      for (const char* key : {"weights_hash", "final_loss", "test_accuracy"})
        EXPECT_EQ(many[key], one[key]) << ranks << how;
    }
}

// IDX files of `count` images of 8 x 8, in three classes.
void write_images(const std::string& prefix, int count) {
  const auto number = [](int n) {
    return std::string({0, 0, static_cast<char>(n >> 8), static_cast<char>(n)});
  };
  std::string images = number(0x803) + number(count) + number(8) + number(8);
  std::string labels = number(0x801) + number(count);
  for (int i = 0; i < 64 * count; ++i) images += static_cast<char>(i * i % 251);
  for (int i = 0; i < count; ++i) labels += static_cast<char>(i * i % 7 % 3);
  std::ofstream(prefix + "-images-idx3-ubyte", std::ios::binary) << images;
  std::ofstream(prefix + "-labels-idx1-ubyte", std::ios::binary) << labels;
}

TEST_F(RanksTest, SlicesOfUnevenBatchesTrainTheSame) {
  std::filesystem::create_directory(path("images"));
  write_images(path("images") + "/train", 130);
  write_images(path("images") + "/t10k", 40);
  // The last batch has four examples for eight slices.
  const std::string run = "train fashion-mnist --data " + path("images") +
                          " --epochs 2 --batch 21 --slices 8 --json --shard ";
  const Json one = json_of(launch(1, run + "0"));
  for (const char* shard : {"0", "3"})
    EXPECT_EQ(json_of(launch(4, run + shard))["weights_hash"], one["weights_hash"]) << shard;
}

TEST_F(RanksTest, ThePlanSaysWhatTheRunHolds) {
  for (const char* options :
       {"--slices 4 --shard 0", "--slices 4 --shard 2", "--slices 4 --shard 3",
        "--slices 8 --shard 0 --precision bf16", "--shard 1 --precision bf16",
        "--shard 2 --precision f16", "--shard 3 --precision bf16"}) {
    const std::string how = std::string("--epochs 1 ") + options;
    const Outcome plan = testing::tenon_command(unsaved(how + " --plan-only --ranks 4"));
    ASSERT_EQ(plan.status, 0) << plan.err;
    const Json foreseen = Json::parse(plan.out);
    const Json held = json_of(launch(4, text(how)))["ranks"];
    ASSERT_EQ(foreseen.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i)
      for (const char* key : {"peak_bytes", "at_peak", "sent_bytes_per_step"})
        EXPECT_EQ(foreseen[i][key], held[i][key]) << how << ", rank " << i << ", " << key;
  }
}

TEST_F(RanksTest, MixedPrecisionTrainsTheSameOnAnyNumberOfRanksAndGoesOn) {
  const Json exact = json_of(launch(1, text("--epochs 2 --slices 4")));
  for (const std::string precision : {"bf16", "f16"}) {
    const std::string how = "--epochs 2 --slices 4 --precision " + precision;
    const Json one = json_of(launch(1, text(how, "one" + precision)));
    EXPECT_NEAR(one["final_loss"], exact["final_loss"], 0.01 * exact["final_loss"].get<double>());
    EXPECT_NE(one["weights_hash"], exact["weights_hash"]);
    EXPECT_EQ(json_of(launch(4, text(how + " --shard 3")))["weights_hash"], one["weights_hash"]);
    std::filesystem::remove_all(path("run"));
    strike(text(how + " --shard 2 --save-every 2"), path("run") + "/model.safetensors.index.json",
           SIGKILL, 1);
    const Json again =
        json_of(launch(2, text("--slices 4 --shard 3 --resume " + path("run"), "again")));
    EXPECT_EQ(again["weights_hash"], one["weights_hash"]) << precision;
    const Outcome other = launch(2, text("--precision f32 --resume " + path("run")));
    EXPECT_EQ(other.status, 2);
    EXPECT_THAT(other.err, HasSubstr("was saved with " + precision));
    EXPECT_EQ(count(other.err, "tenon: "), 1u) << other.err;
  }
}

// Gradients of the head have elements above 1; times 65536 they are no f16.
TEST_F(RanksTest, AnOverflowOfF16SkipsTheStepOnAllRanks) {
  std::ofstream text(path("short"));
  for (int i = 0; i < 200; ++i) text << (i * i) % 97 << " of these";
  text.close();
  const std::string run = "train text " + path("short") +
                          " --length 4 --batch 4 --layers 1 --width 32 --epochs 1 --json "
                          "--slices 4 --precision f16 --save ";
  const Json one = json_of(launch(1, run + path("one")));
  EXPECT_GT(one["skipped_steps"], 0);
  EXPECT_EQ(one["loss_scale"], std::ldexp(65536, -one["skipped_steps"].get<int>()));
  const Json many = json_of(launch(2, run + path("many") + " --shard 3"));
  EXPECT_EQ(many["weights_hash"], one["weights_hash"]);
  EXPECT_EQ(many["skipped_steps"], one["skipped_steps"]);
}

TEST_F(RanksTest, ShardedParametersAreAPartAndTheLayersThatAreGathered) {
  const auto held = [&](const std::string& how, const char* use) {
    const Outcome plan = testing::tenon_command(
        "train text " + path("text") + " --length 16 --width 32 --json --plan-only " + how);
    EXPECT_EQ(plan.status, 0) << plan.err;
    return Json::parse(plan.out)[0]["at_peak"][use].get<std::uint64_t>();
  };
  const auto parameters = [&](const std::string& how) { return held(how, "parameters"); };
  const std::uint64_t all = parameters("--layers 4");
  const std::uint64_t layer = parameters("--layers 5") - all;
  const std::uint64_t outside = all - 4 * layer;
  const std::string how = "--layers 4 --shard 3 --ranks 4";
  EXPECT_EQ(parameters(how), all / 4 + outside + 2 * layer);
  EXPECT_EQ(parameters(how + " --no-prefetch"), all / 4 + outside + layer);
  // Room for three batches to train with, of which a rank has its slices, and one to test with.
  const std::uint64_t room = held("", "data") / 4;
  EXPECT_EQ(held("--ranks 4", "data"), 3 * room / 4 + room);
  EXPECT_EQ(held("--ranks 4 --slices 8 --shard 2", "data"), 3 * room / 4 + room);
}

TEST_F(RanksTest, AVulkanDeviceOfEachRankTrainsTheSame) {
  const auto drivers = testing::vulkan_drivers();
  ASSERT_FALSE(drivers.empty()) << "install mesa-vulkan-drivers (make setup does)";
  const std::string driver = "LP_NUM_THREADS=1 VK_DRIVER_FILES=" + drivers.front().file;
  std::ofstream(path("text")) << std::ifstream(TENON_SOURCE_DIR "/README.md").rdbuf();
  std::filesystem::resize_file(path("text"), 3000);
  const std::string how = " --epochs 1 --slices 2 --device vulkan:0 --shard ";
  const Json one = json_of(launch(1, text(how + "0"), driver));
  for (const char* shard : {"0", "3"}) {
    const Json two = json_of(launch(2, text(how + shard), driver));
    EXPECT_EQ(two["weights_hash"], one["weights_hash"]) << shard;
    const Outcome plan = testing::tenon_command(
        unsaved(how + shard + " --plan-only --ranks 2"), "TENON_NUM_THREADS=1 " + driver);
    ASSERT_EQ(plan.status, 0) << plan.err;
    EXPECT_EQ(Json::parse(plan.out)[1]["at_peak"], two["ranks"][1]["at_peak"]) << shard;
  }
}

TEST_F(RanksTest, RanksThatDifferAreToldOnceAndNamed) {
  std::ofstream(path("other")) << std::ifstream(path("text")).rdbuf() << "more";
  const std::string save = " --json --save " + path("run");
  const auto different = [&](const std::string& first, const std::string& second) {
    return testing::tenon_command(
        first + save,
        "TENON_NUM_THREADS=1 " TENON_LAUNCH " -n 1 " TENON_COMMAND " " + second + save +
            " : -n 2");
  };
  struct Case {
    std::string other;
    const char* words;
  };
  const std::string same = "train text " + path("text") + " --length 16 --layers 2 --width 32";
  for (const Case& c :
       {Case{same + " --seed 9", "--seed of rank 1"},
        Case{same + " --allocator system", "--allocator of rank 1"},
        Case{same + " --precision bf16", "--precision of rank 1 is"},
        Case{"train text " + path("other") + " --length 16 --layers 2 --width 32", "of rank 1"},
        Case{"train text " + path("text") + " --length 16 --layers 3 --width 32", "of rank 1"}}) {
    const Outcome run = different(same, c.other);
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_THAT(run.err, HasSubstr(c.words));
    EXPECT_EQ(count(run.err, "tenon: "), 1u) << run.err;
  }
  const Outcome commands = testing::tenon_command(
      "fleet " + folder_.path(),
      "TENON_NUM_THREADS=1 " TENON_LAUNCH " -n 1 " TENON_COMMAND " " + text("") + " : -n 1");
  EXPECT_THAT(commands.err, HasSubstr("the subcommand of rank 1 is fleet, of rank 0 train"));
  EXPECT_EQ(count(commands.err, "tenon: "), 1u) << commands.err;
  const Outcome folder = testing::tenon_command(
      text("", "one"),
      "TENON_NUM_THREADS=1 " TENON_LAUNCH " -n 1 " TENON_COMMAND " " + text("", "two") + " : -n 1");
  EXPECT_EQ(folder.status, 2) << folder.err;
  EXPECT_THAT(folder.err, HasSubstr("--save of rank 1 is " + path("one")));
  EXPECT_FALSE(std::filesystem::exists(path("two")));
  for (const auto& [ranks, words] :
       std::map<int, const char*>{{4, "--slices 2 for 4 ranks: give a power of two, 4 or more"},
                                  {3, "--slices 2 for 3 ranks: slices need 1, 2, 4, 8 or"}}) {
    const Outcome many = launch(ranks, text("") + " --slices 2");
    EXPECT_EQ(many.status, 2);
    EXPECT_THAT(many.err, HasSubstr(words));
    EXPECT_EQ(count(many.err, "tenon: "), 1u) << many.err;
  }
}

// A copy of the two programs, with another version.
TEST_F(RanksTest, AnotherVersionOfTenonIsToldOnceAndNamed) {
  const std::filesystem::path command = TENON_COMMAND;
  std::ifstream file(command.parent_path() / "tenon-training", std::ios::binary);
  std::string program(std::istreambuf_iterator<char>(file), {});
  const std::string mark = std::string(TENON_VERSION) + '\0';  // a linker joins texts of one end
  std::size_t changed = 0;
  for (std::size_t at = 0; (at = program.find(mark, at)) != std::string::npos; ++changed)
    program[at + mark.size() - 2] = '~';
  ASSERT_GT(changed, 0u) << "the version is no text in the program";
  std::filesystem::copy(command, path("tenon"));
  std::ofstream(path("tenon-training"), std::ios::binary) << program;
  std::filesystem::permissions(path("tenon-training"), std::filesystem::perms::owner_all);
  const Outcome run = testing::tenon_command(
      text(""), "TENON_NUM_THREADS=1 " TENON_LAUNCH " -n 1 " TENON_COMMAND " " + text("") +
                    " : -n 2 env TENON_NUM_THREADS=1 " + path("tenon") + " " + text("") +
                    " : -n 1");
  EXPECT_EQ(run.status, 2) << run.err;
  EXPECT_THAT(run.err, HasSubstr("ranks must run the same: tenon of rank 1 is "));
  EXPECT_EQ(count(run.err, "tenon: "), 1u) << run.err;
}

TEST_F(RanksTest, AMistakeInTheOptionsIsToldOnce) {
  for (const char* mistake : {"--no-such-option", "--batch many", "--ranks 2", "--shard 7",
                              "--precision int8", "--precision f64",
                              "--precision bf16 --device vulkan"}) {
    const Outcome run = launch(3, text(mistake));
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_THAT(run.err, HasSubstr("tenon: rank 0: "));
    EXPECT_EQ(count(run.err, "tenon: "), 1u) << run.err;
  }
  for (const char* mistake : {"trian", "replay --no-such-option", "train", "fleet --jobs many .",
                              "--no-such-option"}) {
    const Outcome run = launch(4, mistake);
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_THAT(run.err, HasSubstr("tenon: rank 0: "));
    EXPECT_EQ(count(run.err, "tenon: "), 1u) << run.err;
  }
  for (const char* before : {"TENON_RANK_TIMEOUT=soon", "LD_PRELOAD=" TENON_NO_THREADS_LIBRARY}) {
    const Outcome run = testing::tenon_command(
        text(""), std::string("TENON_NUM_THREADS=1 " TENON_LAUNCH " -n 3 env ") + before);
    EXPECT_NE(run.status, 0);
    EXPECT_THAT(run.err, ::testing::AnyOf(HasSubstr("TENON_RANK_TIMEOUT: \"soon\" is not allowed"),
                                          HasSubstr("without support for threads")));
    EXPECT_EQ(count(run.err, "tenon: "), 1u) << run.err;
  }
  const Outcome second = testing::tenon_command(
      text(""), "TENON_NUM_THREADS=1 " TENON_LAUNCH " -n 1 " TENON_COMMAND " " +
                    text("--no-such-option") + " : -n 2");
  EXPECT_NE(second.status, 0);
  EXPECT_THAT(second.err, HasSubstr("no-such-option"));
  EXPECT_EQ(count(second.err, "tenon: "), 1u) << second.err;
}

// A launcher's line for two ranks, the second with other variables or limits.
Outcome launch_second(const std::string& arguments, const std::string& second) {
  return testing::tenon_command(
      arguments, "TENON_NUM_THREADS=1 timeout -s KILL 60 " TENON_LAUNCH " -n 1 " TENON_COMMAND " " +
                     arguments + " : -n 1 " + second);
}

TEST_F(RanksTest, ARankWithAFullDiskEndsAllAndKeepsTheEarlierCheckpoint) {
  const std::string run = text("--epochs 1 --save-every 4 --shard 3");
  const std::string index = path("run") + "/model.safetensors.index.json";
  // Rank 1 writes two files for a checkpoint, each with two calls: the file's and the folder's. So
  // the fifth is of the second checkpoint. 28 is ENOSPC.
  const Outcome full = launch_second(
      run, "env LD_PRELOAD=" TENON_FAILING_CALLS_LIBRARY " TENON_FAIL_CALL=fsync:5:28");
  EXPECT_EQ(full.status, 1) << full.err;
  EXPECT_THAT(full.err, HasSubstr("rank 1: " + path("run") + "/"));
  EXPECT_THAT(full.err, HasSubstr("No space left on device"));
  EXPECT_EQ(count(full.err, "tenon: "), 1u) << full.err;
  EXPECT_EQ(Json::parse(std::ifstream(index))["metadata"]["step"], "4");
  EXPECT_EQ(launch(2, run + " --resume " + path("run")).status, 0);
}

TEST_F(RanksTest, ARankWithoutMemoryEndsAllAndSaysWhatNeedsLess) {
  // Activations of more than the limit, which lets MPI start.
  const auto start = std::chrono::steady_clock::now();
  const Outcome run = launch_second("train text " + path("text") + " --length 256 --width 256 " +
                                        "--batch 256 --json --save " + path("run"),
                                    "prlimit --as=1000000000");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_THAT(run.err, HasSubstr("rank 1: out of memory"));
  EXPECT_THAT(run.err, HasSubstr("(ulimit -v)"));
  EXPECT_THAT(run.err, HasSubstr("a smaller --batch or a higher --shard"));
  EXPECT_EQ(count(run.err, "tenon: "), 1u) << run.err;
}

TEST_F(RanksTest, ARankThatDiesOrHangsEndsTheOthersAndIsNamed) {
  const std::string index = path("run") + "/model.safetensors.index.json";
  const std::string run = text("--epochs 1000 --slices 4 --shard 2 --save-every 5");
  const Ended killed = strike(run, index, SIGKILL, 2);
  EXPECT_LT(killed.seconds, 10);
  // By the launcher; MPICH's says the process number only. Or by MPICH's transport, where a read
  // from the process fails first.
  EXPECT_THAT(killed.err, ::testing::AnyOf(HasSubstr("rank"), HasSubstr("BAD TERMINATION"),
                                           HasSubstr("No such process")));
  std::filesystem::remove_all(path("run"));
  const Ended stopped = strike(run, index, SIGSTOP, 1);
  EXPECT_LT(stopped.seconds, 60);  // the rank's own time is 7 s; the launcher's is not ours
  EXPECT_THAT(stopped.err, HasSubstr("it hangs or is gone"));
  EXPECT_EQ(count(stopped.err, "tenon: "), 1u) << stopped.err;
}

TEST_F(RanksTest, ARunGoesOnWithAnotherNumberOfRanks) {
  const Json whole = json_of(launch(1, text("--epochs 2 --slices 4", "whole")));
  const std::string index = path("run") + "/model.safetensors.index.json";
  strike(text("--epochs 2 --slices 4 --shard 3 --save-every 2"), index, SIGKILL, 0);
  std::ifstream file(index);
  const Json saved = Json::parse(file);
  EXPECT_TRUE(saved.contains("weight_map"));
  EXPECT_NE(saved["metadata"]["step"], Json::parse(std::ifstream(
                path("whole") + "/model.safetensors.index.json"))["metadata"]["step"])
      << "the run was not interrupted";
  for (const int ranks : {2, 1}) {
    const Json again = json_of(launch(
        ranks, text("--slices 4 --shard 1 --resume " + path("run"), std::to_string(ranks))));
    EXPECT_EQ(again["weights_hash"], whole["weights_hash"]) << ranks;
  }
}

TEST_F(RanksTest, RunsThatAreKilledAgainAndAgainEndWithTheSameWeights) {
  const std::string how = "--epochs 2 --slices 4 --shard 3";
  const Json whole = json_of(launch(1, text("--epochs 2 --slices 4")));
  std::filesystem::remove_all(path("run"));
  const std::string index = path("run") + "/model.safetensors.index.json";
  for (int i = 0; i < 3; ++i) {
    const std::string resume = i == 0 ? "" : " --resume " + path("run");
    strike(text(how + " --save-every 2" + resume), index, SIGKILL, i);
  }
  const Json again = json_of(launch(2, text(how + " --resume " + path("run"))));
  EXPECT_EQ(again["weights_hash"], whole["weights_hash"]);
}

}  // namespace
}  // namespace tenon
