// tenon train and tenon generate as their users meet them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "support/command.h"
#include "support/temporary.h"
#include "tenon/nn/data/idx.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TemporaryFile;
using testing::TemporaryFolder;
using Json = nlohmann::json;
using testing::Outcome;
using testing::tenon_command;

// Images of 8 x 8 whose class is the quadrant that is bright.
void write_images(const std::string& folder, const std::string& which, std::int64_t count,
                  std::uint64_t seed) {
  Generator generator(seed);
  const Tensor labels = randint(0, 4, {count}, DType::kI64, generator);
  const Tensor images = randint(0, 100, {count, 8, 8}, DType::kI64, generator);
  const auto* label = labels.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i)
    fill_(images[i].narrow(0, label[i] / 2 * 4, 4).narrow(1, label[i] % 2 * 4, 4), 220);
  std::ofstream(folder + "/" + which + "-images-idx3-ubyte", std::ios::binary)
      << nn::format_idx(to(images, DType::kU8));
  std::ofstream(folder + "/" + which + "-labels-idx1-ubyte", std::ios::binary)
      << nn::format_idx(to(labels, DType::kU8));
}

class TrainTest : public ::testing::Test {
 protected:
  TrainTest() {
    write_images(folder_.path(), "train", 200, 1);
    write_images(folder_.path(), "t10k", 60, 2);
  }
  std::string images(const std::string& more) const {
    return "train fashion-mnist --data " + folder_.path() + " --batch 32 " + more;
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  const TemporaryFolder folder_;
};

TEST_F(TrainTest, JsonHasExactlyItsKeys) {
  const Outcome run = tenon_command(images("--model mlp --epochs 3 --json"));
  ASSERT_EQ(run.status, 0) << run.err;
  const Json json = Json::parse(run.out);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(
      keys, ::testing::UnorderedElementsAre(
                "test_accuracy", "final_loss", "samples_per_second", "peak_bytes",
                "reserved_peak_bytes", "driver_calls_after_step_2", "weights_hash", "layout_hash"));
  EXPECT_GE(json["test_accuracy"], 0.95);
  EXPECT_LT(json["final_loss"], 1.0);
  EXPECT_EQ(json["driver_calls_after_step_2"], 0);
  EXPECT_GT(json["reserved_peak_bytes"], json["peak_bytes"]);
}

TEST_F(TrainTest, TwoRunsWithOneSeedAreTheSameToTheBit) {
  for (const char* model : {"mlp", "cnn"}) {
    const std::string command = images(std::string("--epochs 1 --json --model ") + model);
    const Json first = Json::parse(tenon_command(command).out);
    const Json second = Json::parse(tenon_command(command).out);
    const Json other = Json::parse(tenon_command(command + " --seed 2").out);
    for (const char* key : {"final_loss", "weights_hash", "layout_hash", "peak_bytes"})
      EXPECT_EQ(first[key], second[key]) << model << " " << key;
    EXPECT_NE(first["weights_hash"], other["weights_hash"]);
    EXPECT_EQ(first["layout_hash"], other["layout_hash"]) << "the layout depends on sizes alone";
  }
}

TEST_F(TrainTest, EveryPolicyTrainsToTheSameWeights) {
  const std::string command = images("--model mlp --epochs 1 --json --allocator ");
  const Json host = Json::parse(tenon_command(command + "host").out);
  for (const char* policy : {"system", "buddy", "pool", "caching", "expandable", "unified",
                             "stitched", "arena", "plan"}) {
    const Outcome run = tenon_command(command + policy);
    ASSERT_EQ(run.status, 0) << policy << ": " << run.err;
    const Json json = Json::parse(run.out);
    EXPECT_EQ(json["weights_hash"], host["weights_hash"]) << policy;
    // A plan knows nothing of the smaller last batch: what serves it instead grows once.
    EXPECT_LE(json["driver_calls_after_step_2"], std::string(policy) == "plan" ? 1 : 0) << policy;
  }
}

TEST_F(TrainTest, TheReportSaysWhereTheBytesWere) {
  const TemporaryFile trace(".csv");
  const Outcome run = tenon_command(images("--model cnn --epochs 1 --record " + trace.path()));
  ASSERT_EQ(run.status, 0) << run.err;
  for (const char* words :
       {"test accuracy", "parameters", "gradients", "optimiser", "activations", "temporaries",
        "model.0", "driver calls after step 2: 0", "predicted from the first", "stitched",
        "fragmentation", "allocator calls"})
    EXPECT_THAT(run.out, HasSubstr(words));
  EXPECT_THAT(run.out, Not(HasSubstr("MORE")));
  EXPECT_THAT(run.err, IsEmpty());
  const Outcome replay = tenon_command("replay --policy caching --passes 0 --json " + trace.path());
  ASSERT_EQ(replay.status, 0) << replay.err;
  EXPECT_GT(Json::parse(replay.out)[0]["events"], 100);
}

TEST_F(TrainTest, TrainsWithinALimitOrSaysWhatIsMissing) {
  const Outcome fits = tenon_command(images("--model mlp --epochs 1 --json --memory-limit 64MiB"));
  ASSERT_EQ(fits.status, 0) << fits.err;
  EXPECT_LE(Json::parse(fits.out)["reserved_peak_bytes"], 64 << 20);
  const Outcome small = tenon_command(images("--model mlp --epochs 1 --memory-limit 1MiB"));
  EXPECT_EQ(small.status, 1);
  EXPECT_THAT(small.err, HasSubstr("--memory-limit 1 MiB"));
  EXPECT_THAT(small.err, HasSubstr("more"));
  EXPECT_EQ(tenon_command(images("--memory-limit much")).status, 2);
  EXPECT_EQ(tenon_command(images("--memory-limit 0")).status, 2);
}

TEST_F(TrainTest, ASavedRunGoesOnExactly) {
  const std::string saved = path("run.safetensors");
  const std::string whole = images("--model mlp --epochs 300 --json");
  const Json wanted = Json::parse(tenon_command(whole).out);
  // Interrupted somewhere: after a while, by SIGINT.
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string command =
        "exec " TENON_COMMAND " " + whole + " --save " + saved + " >/dev/null 2>" + path("err");
    ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::kill(child, SIGINT);
  int raw = 0;
  ::waitpid(child, &raw, 0);
  if (!WIFEXITED(raw) || WEXITSTATUS(raw) != 130)
    GTEST_SKIP() << "it was over, or not yet begun, when the signal came";
  std::ifstream err(path("err"));
  const std::string said(std::istreambuf_iterator<char>(err), {});
  EXPECT_THAT(said, HasSubstr("--resume " + saved));
  const Outcome resumed =
      tenon_command("train fashion-mnist --data " + folder_.path() + " --json --resume " + saved);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const Json json = Json::parse(resumed.out);
  EXPECT_EQ(json["weights_hash"], wanted["weights_hash"]);
  EXPECT_EQ(json["final_loss"], wanted["final_loss"]);
  EXPECT_EQ(json["test_accuracy"], wanted["test_accuracy"]);
  EXPECT_EQ(tenon_command(images("--seed 9 --resume " + saved)).status, 2);
}

TEST_F(TrainTest, BadDataIsAClearError) {
  const Outcome missing = tenon_command("train fashion-mnist --data /no/such/folder");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("/no/such/folder/train-images-idx3-ubyte"));
  std::ofstream(path("train-labels-idx1-ubyte"), std::ios::binary) << "garbage";
  const Outcome corrupt = tenon_command(images(""));
  EXPECT_EQ(corrupt.status, 2);
  EXPECT_THAT(corrupt.err, HasSubstr("train-labels-idx1-ubyte"));
  EXPECT_EQ(tenon_command("train fashion-mnist --model rnn").status, 2);
  EXPECT_EQ(tenon_command("train fashion-mnist --batch 0").status, 2);
  EXPECT_EQ(tenon_command("train").status, 2);
  const Outcome policy =
      tenon_command("train text " TENON_SOURCE_DIR "/data/text/genesis.txt --allocator best");
  EXPECT_EQ(policy.status, 2);
  EXPECT_THAT(policy.err, HasSubstr("the policies are"));
}

TEST_F(TrainTest, ALossThatBecomesNanNamesItsOperator) {
  const Outcome run = tenon_command(images("--model mlp --epochs 9 --json --learning-rate 1e30"));
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("made the first NaN"));
  EXPECT_THAT(run.err, HasSubstr("in model."));
}

TEST_F(TrainTest, AGradientThatBecomesNanIsToldInOneLine) {
  const Outcome run = tenon_command("train text " TENON_SOURCE_DIR "/LICENSE --layers 1 "
                                    "--width 16 --heads 2 --epochs 1 --learning-rate 1e39");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("cross_entropy gave a gradient with NaN"));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
}

// The last step's update is what no further step sees.
TEST_F(TrainTest, WeightsThatTestAsNanAreNotSaved) {
  const TemporaryFolder folder;
  const std::string text = folder.path() + "/a.txt", saved = folder.path() + "/n.safetensors";
  std::ofstream(text) << std::string(600, 'a') << "bcdefgh" << std::string(600, 'b');
  const Outcome run = tenon_command("train text " + text +
                                    " --layers 1 --width 16 --heads 2 --length 16 --epochs 1 "
                                    "--batch 65536 --learning-rate 1e308 --save " + saved);
  EXPECT_EQ(run.status, 1) << run.out;
  EXPECT_THAT(run.err, HasSubstr("the test loss is"));
  EXPECT_FALSE(std::filesystem::exists(saved));
}

// A run that is refused after the model is built ends in a line, too.
TEST_F(TrainTest, ARunOfOtherDataIsRefused) {
  const std::string sizes = " --layers 1 --width 8 --heads 1 --length 8 --epochs 1 --save ";
  std::ofstream(path("text")) << std::string(600, 'a') + std::string(600, 'b');
  std::ofstream(path("other")) << std::string(600, 'x') + std::string(600, 'y');
  const std::string saved = path("run.safetensors");
  ASSERT_EQ(tenon_command("train text " + path("text") + sizes + saved).status, 0);
  const Outcome other = tenon_command("train text " + path("other") + " --resume " + saved);
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr(saved + ": its \"vocabulary\" is not that of these data"));
  std::ifstream whole(saved, std::ios::binary);
  const std::string good(std::istreambuf_iterator<char>(whole), {});
  for (const auto& [key, value] : std::map<std::string, std::string>{
           {"step", "x"}, {"epoch_loss_sum", "x"}, {"epoch_counted", ""}, {"learning_rate", ""}}) {
    const std::size_t at = good.find("\"" + key + "\":\"") + key.size() + 4;
    const std::size_t length = good.find('"', at) - at;
    const std::string filled = value + std::string(length - value.size(), ' ');
    std::ofstream(saved, std::ios::binary) << std::string(good).replace(at, length, filled);
    const Outcome damaged = tenon_command("train text " + path("text") + " --resume " + saved);
    EXPECT_EQ(damaged.status, 2) << key;
    EXPECT_THAT(damaged.err, HasSubstr("its \"" + key + "\" is \"" + value));
  }
}

TEST_F(TrainTest, NothingThatIsReadIsWrittenOver) {
  std::ofstream(path("text")) << std::string(3000, 'a');
  const auto refused = [&](const std::string& command) {
    const Outcome run = tenon_command(command);
    EXPECT_EQ(run.status, 2) << command;
    return run.err;
  };
  const std::string text = "train text " + path("text");
  EXPECT_THAT(refused(text + " --save " + path("text")), HasSubstr("is a file that is read"));
  EXPECT_THAT(refused(text + " --record " + path("text")), HasSubstr("is a file that is read"));
  EXPECT_THAT(refused(images("--save " + path("train-images-idx3-ubyte"))),
              HasSubstr("is a file that is read"));
  EXPECT_THAT(refused(text + " --save " + path("a.csv") + " --record " + path("./a.csv")),
              HasSubstr("--record and --save both name"));
  EXPECT_THAT(refused(text + " --record " + path("a.trace")), HasSubstr(".csv"));
  EXPECT_EQ(std::filesystem::file_size(path("text")), 3000u);
}

// Found at once: a million epochs would take hours.
TEST_F(TrainTest, AFileThatCannotBeWrittenIsFoundBeforeTraining) {
  for (const char* file : {"/no/such/folder/run.safetensors", "/dev"}) {
    const Outcome run =
        tenon_command(images(std::string("--model mlp --epochs 1000000 --save ") + file),
                      "timeout 60");
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.err, HasSubstr(std::string(file) + ": cannot be written"));
    EXPECT_THAT(run.out, Not(HasSubstr("epoch")));
  }
  const Outcome record = tenon_command(
      images("--model mlp --epochs 1000000 --record /no/such/folder/run.csv"), "timeout 60");
  EXPECT_EQ(record.status, 1);
  EXPECT_THAT(record.err, HasSubstr("/no/such/folder/run.csv: cannot be written"));
}

// Runs until it has printed an epoch, then sends the signal.
TEST_F(TrainTest, SignalsSaveTheRun) {
  for (const auto& [signal, status] : {std::pair("TERM", 143), std::pair("HUP", 129)}) {
    const std::string saved = path(std::string(signal) + ".safetensors");
    const TemporaryFile script(
        ".sh", TENON_COMMAND " " + images("--model mlp --epochs 1000000 --save ") + saved +
                   " >" + saved + ".out &\n" + "while ! grep -q epoch " + saved + ".out" +
                   "; do sleep 0.05; done\nkill -" + signal + " $!\nwait $!\n");
    const int raw =
        std::system(("timeout 60 bash " + script.path() + " 2>" + path("err")).c_str());
    EXPECT_EQ(WEXITSTATUS(raw), status);
    std::ifstream err(path("err"));
    const std::string said(std::istreambuf_iterator<char>(err), {});
    EXPECT_THAT(said, HasSubstr("saved as " + saved));
    EXPECT_THAT(said, HasSubstr("--resume " + saved));
    EXPECT_TRUE(std::filesystem::exists(saved));
  }
}

TEST_F(TrainTest, AReaderThatGoesAwayDoesNotEndTheRun) {
  const std::string saved = path("run.safetensors");
  const TemporaryFile script(".sh", "(" TENON_COMMAND " " +
                                        images("--model mlp --epochs 3 --save ") + saved +
                                        "; echo status $? >&2) | true\n");
  EXPECT_EQ(std::system(("bash " + script.path() + " 2>" + path("err")).c_str()), 0);
  std::ifstream err(path("err"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(err), {}), "status 141\n");
  EXPECT_TRUE(std::filesystem::exists(saved));
}

TEST_F(TrainTest, TextIsLearntAndGenerated) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  std::ofstream(path("text")) << text;
  const std::string saved = path("text.safetensors");
  const Outcome run = tenon_command(
      "train text " + path("text") +
      " --length 32 --layers 2 --width 32 --heads 2 --batch 8 --epochs 4 --save " + saved);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("test accuracy"));
  const Outcome made =
      tenon_command("generate " + saved + " --prompt 'the quick' --count 40" + " --temperature 0");
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("the quick brown fox jumps"));
  const Outcome again = tenon_command("generate " + saved + " --prompt 'the' --seed 3");
  EXPECT_EQ(again.out, tenon_command("generate " + saved + " --prompt 'the' --seed 3").out);
  EXPECT_THAT(tenon_command("generate " + saved + " --prompt XYZ").err, HasSubstr("'X'"));
  EXPECT_EQ(tenon_command("generate " + path("text")).status, 2);
  EXPECT_EQ(tenon_command("train text /no/such/text").status, 2);
  std::ofstream(path("short")) << "short";
  EXPECT_THAT(tenon_command("train text " + path("short")).err, HasSubstr("5 characters"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // theirs take more addresses
TEST_F(TrainTest, EndsWhereOpenBlasCannotMapABuffer) {
  std::ofstream(path("text")) << std::string(3000, 'a') << "b";
  const std::string run = "train text " + path("text") +
                          " --length 8 --layers 1 --width 32 --heads 2 --epochs 1 --save " +
                          path("saved.safetensors");
  int of_blas = 0;
  for (int kib = 180'000; kib <= 420'000; kib += 60'000) {
    const auto limited = [&](const std::string& arguments, int seconds) {
      return tenon_command(arguments, fmt::format("ulimit -v {}; TENON_NUM_THREADS=1 timeout -s "
                                                  "KILL {}", kib, seconds));
    };
    // OpenBLAS 0.3.29 maps one as the program starts, and tries again without end.
    if (limited("train --help", 20).status == 137) continue;
    const Outcome outcome = limited(run, 60);
    EXPECT_THAT(outcome.status, ::testing::AnyOf(0, 1, 2)) << kib << ": " << outcome.err;
    const bool blas = outcome.err.find("OpenBLAS") != std::string::npos;
    if (blas) {
      EXPECT_THAT(outcome.err, HasSubstr("raise the limit of")) << kib;
    }
    of_blas += blas ? 1 : 0;
  }
  EXPECT_GT(of_blas, 0);
}
#endif

// --- Checkpoints that lie about their model.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr const char* kLimitAddresses = "";  // the sanitizer's own take more
#else
constexpr const char* kLimitAddresses = "ulimit -v 1048576;";
#endif

std::string text_checkpoint(const std::map<std::string, std::string>& metadata) {
  Json header = {{"__metadata__", metadata}};
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes += static_cast<char>(text.size() >> (8 * i));
  return bytes + text;
}

TEST(TextCheckpoint, IsComparedWithItsFileBeforeAnythingIsBuilt) {
  const std::map<std::string, std::string> good = {
      {"task", "text"}, {"vocabulary", "6162"}, {"length", "8"},    {"layers", "2"},
      {"width", "64"},  {"heads", "4"},         {"epochs", "1"},    {"batch", "1"},
      {"seed", "1"},    {"step", "0"},          {"learning_rate", "0x1p-9"}};
  struct Case {
    const char* key;
    const char* value;
    const char* reason;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"width", "1048576", "its tensors hold 0 numbers; a model of 2 layers"},
           {"layers", "1048576", "its tensors hold 0 numbers"},
           {"length", "1048577", "its \"length\" is 1048577; it may be 1 to 1048576"},
           {"width", "0", "its \"width\" is 0"},
           {"heads", "5", "its 5 heads do not divide its width of 64"},
           {"heads", "-1", "its \"heads\" is \"-1\", no number"}}) {
    std::map<std::string, std::string> metadata = good;
    metadata[c.key] = c.value;
    const TemporaryFile file(".safetensors", text_checkpoint(metadata));
    for (const std::string& arguments :
         {"generate " + file.path(),
          "train text " TENON_SOURCE_DIR "/data/text/genesis.txt --resume " + file.path()}) {
      // 1 GiB of addresses is enough to read the file, and not for such a model.
      const Outcome run = tenon_command(arguments, kLimitAddresses);
      EXPECT_EQ(run.status, 2) << arguments;
      EXPECT_THAT(run.err, HasSubstr("tenon: " + file.path() + ": " + c.reason));
    }
  }
  std::map<std::string, std::string> metadata = good;
  metadata["vocabulary"] = "6261";
  const TemporaryFile file(".safetensors", text_checkpoint(metadata));
  const Outcome run = tenon_command("generate " + file.path());
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr(file.path() + ": its vocabulary is damaged"));
  for (const auto& [key, value] : std::map<std::string, std::string>{
           {"batch", "9223372036854775808"}, {"epochs", "0"}, {"learning_rate", "nan"}}) {
    metadata = good;
    metadata[key] = value;
    const TemporaryFile resumed(".safetensors", text_checkpoint(metadata));
    const Outcome train = tenon_command(
        "train text " TENON_SOURCE_DIR "/data/text/genesis.txt --resume " + resumed.path());
    EXPECT_EQ(train.status, 2) << key;
    EXPECT_THAT(train.err, HasSubstr(resumed.path() + ": its \"" + key + "\" is"));
  }
}

TEST_F(TrainTest, SlicesOfABatchTrainWhatTheWholeBatchDoes) {
  const std::string command = images("--model mlp --epochs 1 --json");
  const Json whole = Json::parse(tenon_command(command).out);
  for (const char* slices : {"1", "8"}) {
    const Outcome run = tenon_command(command + " --slices " + slices);
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_NEAR(Json::parse(run.out)["final_loss"], whole["final_loss"], 1e-4) << slices;
  }
  EXPECT_EQ(tenon_command(command + " --slices 3").status, 2);
  EXPECT_EQ(tenon_command(command + " --slices 64").status, 2) << "more than the batch has";
}

TEST_F(TrainTest, APlanNeitherTrainsNorWrites) {
  const Outcome ranks = tenon_command(images("--model mlp --ranks 4"));
  EXPECT_EQ(ranks.status, 2);
  EXPECT_THAT(ranks.err, HasSubstr("--ranks is for --plan-only"));
  for (const char* option : {"--save", "--record"}) {
    const Outcome run =
        tenon_command(images("--model mlp --plan-only " + std::string(option) + " x.csv"));
    EXPECT_EQ(run.status, 2);
    EXPECT_THAT(run.err, HasSubstr(std::string("leave ") + option));
  }
}

TEST_F(TrainTest, APlanHasEachRanksMemory) {
  const auto peaks = [&](int ranks, int shard) {
    const Outcome run = tenon_command(images(
        "--model mlp --plan-only --json --ranks " + std::to_string(ranks) + " --shard " +
        std::to_string(shard)));
    EXPECT_EQ(run.status, 0) << run.err;
    std::vector<std::uint64_t> found;
    for (const Json& rank : Json::parse(run.out)) found.push_back(rank["peak_bytes"]);
    return found;
  };
  const std::uint64_t alone = peaks(1, 0).at(0);
  const std::vector<std::uint64_t> state = peaks(4, 1), all = peaks(4, 3);
  ASSERT_EQ(all.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_LT(state[i], alone);
    EXPECT_LT(all[i], state[i]);
  }
}

TEST_F(TrainTest, AFolderOfARunGoesOn) {
  const TemporaryFolder saved;
  const std::string run_folder = saved.path() + "/run";
  const std::string command = images("--model mlp --epochs 2 --json --save " + run_folder);
  const Outcome whole = tenon_command(command + " --slices 2 --save-every 5");
  ASSERT_EQ(whole.status, 0) << whole.err;
  const Outcome again = tenon_command(command + " --slices 2 --resume " + run_folder);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out)["weights_hash"], Json::parse(whole.out)["weights_hash"]);
  std::ofstream(run_folder + "/model.safetensors.index.json") << "{\"metadata\": {}";
  const Outcome damaged = tenon_command(command + " --slices 2 --resume " + run_folder);
  EXPECT_EQ(damaged.status, 2);
  EXPECT_THAT(damaged.err, HasSubstr("it is no index"));
}

// A copy of the command beside a program that shows its environment.
TEST_F(TrainTest, OpenBlasGetsItsKernelsForAvx512UnlessTheUserNamedOthers) {
  std::filesystem::copy(TENON_COMMAND, path("tenon"));
  std::ofstream(path("tenon-training")) << "#!/bin/sh\necho ${OPENBLAS_CORETYPE-none}\n";
  std::filesystem::permissions(path("tenon-training"), std::filesystem::perms::owner_all);
  const auto kernels = [&](const std::string& before) {
    const TemporaryFile out(".out");
    const std::string command = "env " + before + " " + path("tenon") + " train >" + out.path();
    EXPECT_EQ(std::system(command.c_str()), 0);
    return out.contents();
  };
  std::string cpu;
  std::ifstream list("/proc/cpuinfo");
  while (std::getline(list, cpu) && !cpu.starts_with("flags")) {
  }
  const bool has_avx512 = (cpu + " ").find(" avx512vl ") != std::string::npos;
  EXPECT_EQ(kernels("-u OPENBLAS_CORETYPE"), has_avx512 ? "SkylakeX\n" : "none\n");
  EXPECT_EQ(kernels("OPENBLAS_CORETYPE=Haswell"), "Haswell\n");
}

TEST_F(TrainTest, SeveralProcessesWithoutMpiAreRefused) {
  const Outcome run = tenon_command(images("--model mlp"), "OMPI_COMM_WORLD_SIZE=4");
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, ::testing::AnyOf(HasSubstr("built without MPI"), HasSubstr("sees 1")));
}

}  // namespace
}  // namespace tenon
