// Folders that divided runs save: what a run may replace there, and what it may go on with.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.h"
#include "support/temporary.h"
#include "tenon/base/hash.h"
#include "tenon/trace/file_bytes.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::tenon_command;
using Json = nlohmann::json;
using Contents = std::map<std::string, std::string>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMayPreload = false;  // sanitizers want to be loaded first
#else
constexpr bool kMayPreload = true;
#endif

class SavedFolder : public ::testing::Test {
 protected:
  SavedFolder() {
    std::ofstream text(path("text"));
    for (int i = 0; i < 300; ++i) text << "the shard " << (i * i) % 97 << " holds ";
  }

  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string index(const std::string& run = "run") const {
    return path(run) + "/model.safetensors.index.json";
  }
  Outcome train(const std::string& more, const std::string& before = "") const {
    return tenon_command("train text " + path("text") + " --json " + more, before);
  }
  Outcome start(const std::string& more, const std::string& before = "") const {
    return train("--length 16 --layers 1 --width 16 --heads 2 --batch 64 --epochs 1 --shard 0 "
                 "--save " + path("run") + " " + more, before);
  }
  Outcome resume() const { return train("--resume " + path("run") + " --save " + path("other")); }

  // Every file of a folder.
  static Contents contents_of(const std::string& folder) {
    Contents found;
    for (const auto& entry : fs::directory_iterator(folder))
      found[entry.path().filename()] = FileBytes(entry.path()).view();
    return found;
  }
  std::string shard() const {
    for (const auto& [name, bytes] : contents_of(path("run")))
      if (name.starts_with("model-step")) return path("run") + "/" + name;
    return "";
  }

  // Changes the index, with the checksum that such an index has.
  void edit(const std::function<void(Json&)>& change) const {
    Json json = Json::parse(std::ifstream(index()));
    change(json);
    json.erase("checksum");
    RunningHash hash;
    for (const char c : json.dump()) hash.add(static_cast<unsigned char>(c));
    json["checksum"] = fmt::format("{:016x}", hash.value());
    std::ofstream(index()) << json.dump();
  }
  void expect_refused(const std::string& reason) const {
    const Outcome run = resume();
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_THAT(run.err, HasSubstr(path("run")));
    EXPECT_THAT(run.err, HasSubstr(reason));
  }

  // By what goes on with the run, and by what generates text from it.
  void expect_unreadable(const std::string& reason) const {
    expect_refused(reason);
    const Outcome text = tenon_command("generate " + path("run"));
    EXPECT_EQ(text.status, 2) << text.err;
    EXPECT_THAT(text.err, HasSubstr(reason));
    EXPECT_EQ(text.out, "");
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(SavedFolder, ASaveRemovesTheFilesOfTheEarlierOneAndNoOthers) {
  fs::create_directory(path("run"));
  for (const char* name : {"/model-notes.safetensors", "/optimiser-1.safetensors", "/notes"})
    std::ofstream(path("run") + name) << "kept";
  ASSERT_EQ(start("--seed 1").status, 0);
  const std::string first = shard();
  ASSERT_EQ(start("--seed 2").status, 0);
  EXPECT_FALSE(fs::exists(first));
  const Contents found = contents_of(path("run"));
  EXPECT_EQ(found.size(), 3u + 4u + 1u);
  EXPECT_EQ(found.at("model-notes.safetensors"), "kept");
  EXPECT_EQ(found.at("optimiser-1.safetensors"), "kept");
}

TEST_F(SavedFolder, AFolderOfAnotherProgramOrOfTheDataIsRefused) {
  fs::create_directory(path("run"));
  fs::copy_file(path("text"), path("run") + "/model-x.safetensors");
  const Outcome data = tenon_command("train text " + path("run") +
                                     "/model-x.safetensors --shard 0 --save " + path("run"));
  EXPECT_EQ(data.status, 2);
  EXPECT_THAT(data.err, HasSubstr("model-x.safetensors is there, which is read"));
  std::ofstream(index()) << R"({"metadata": {"total_size": 4}, "weight_map": {"a": "model-x"}})";
  const Contents before = contents_of(path("run"));
  const Outcome other = start("");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr(index()));
  EXPECT_THAT(other.err, HasSubstr("save into another folder"));
  EXPECT_TRUE(contents_of(path("run")) == before);
}

TEST_F(SavedFolder, AFullDiskLeavesTheRunThatWasThere) {
  if (!kMayPreload) GTEST_SKIP() << "not under a sanitizer";
  ASSERT_EQ(start("--seed 1").status, 0);
  const Contents before = contents_of(path("run"));
  // Two a file: of the note that a save is under way, the first file, the fourth, the index.
  for (const int call : {1, 2, 4, 7, 10, 11}) {
    const Outcome full = start("--seed 2", "LD_PRELOAD=" TENON_FAILING_CALLS_LIBRARY
                                           " TENON_FAIL_CALL=fsync:" + std::to_string(call) +
                                           ":28");
    EXPECT_EQ(full.status, 1) << full.err;
    EXPECT_THAT(full.err, HasSubstr("No space left on device"));
    EXPECT_TRUE(contents_of(path("run")) == before) << call;
  }
  EXPECT_EQ(resume().status, 0);
}

// The first save of a run, and one that replaces another, end at any file or at the index.
TEST_F(SavedFolder, WhatAKilledSaveLeavesIsRemovedByTheNextRun) {
  if (!kMayPreload) GTEST_SKIP() << "not under a sanitizer";
  const std::string kept = path("run") + "/model-step1-00001-of-00002-0123456789abcdef.safetensors";
  fs::create_directory(path("run"));
  std::ofstream(kept) << "of an index that is elsewhere";
  for (const char* earlier : {"", "--seed 1"}) {
    if (*earlier != 0) {
      ASSERT_EQ(start(earlier).status, 0);
    }
    const std::size_t whole = contents_of(path("run")).size();
    for (const int call : {1, 2, 4, 7, 10, 11}) {
      const Outcome killed = start("--seed 2", "LD_PRELOAD=" TENON_FAILING_CALLS_LIBRARY
                                               " TENON_FAIL_CALL=fsync:" + std::to_string(call) +
                                               ":0");
      EXPECT_NE(killed.status, 0);
      if (call > 4) {
        EXPECT_GT(contents_of(path("run")).size(), whole) << call;
      }
    }
    ASSERT_EQ(start("--seed 3").status, 0);
    const Contents found = contents_of(path("run"));
    EXPECT_EQ(found.size(), 1u + 4u + 1u);
    EXPECT_TRUE(found.contains(fs::path(kept).filename()));
    EXPECT_EQ(resume().status, 0);
  }
}

TEST_F(SavedFolder, ANoteOfAnotherProgramRemovesNothing) {
  ASSERT_EQ(start("").status, 0);
  const std::string other =
      path("run") + "/model-step9-00001-of-00002-0123456789abcdef.safetensors";
  std::ofstream(other) << "of another run";
  for (const char* note : {"{", "[]", "{}", R"({"kept": 1})", R"({"kept": {}})"}) {
    std::ofstream(path("run") + "/model.safetensors.saving.json") << note;
    ASSERT_EQ(start("--seed 2").status, 0) << note;
    EXPECT_TRUE(fs::exists(other)) << note;
  }
}

TEST_F(SavedFolder, TheFolderOfAnotherRunIsRefused) {
  fs::create_directory(path("run"));
  const int lock = ::open(path("run").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  const Outcome second = start("");
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.err, HasSubstr(path("run") + ": another run saves there"));
  ::close(lock);
  EXPECT_EQ(start("").status, 0);
}

TEST_F(SavedFolder, ANameNeedNotBeUtf8) {
  const std::string name = path("run") + "$(printf '\\377')";
  ASSERT_EQ(start("--save-every 1", "").status, 0);
  const Outcome saved = train("--resume " + path("run") + " --save " + name);
  ASSERT_EQ(saved.status, 0) << saved.err;
  const Outcome again = train("--resume " + name + " --save " + name);
  EXPECT_EQ(again.status, 0) << again.err;
}

TEST_F(SavedFolder, ARunThatCannotStartLeavesNoFolder) {
  ASSERT_EQ(start("").status, 0);
  fs::remove(shard());
  expect_refused("there is no such file");
  EXPECT_FALSE(fs::exists(path("other")));
}

TEST_F(SavedFolder, OtherDataOfTheSameLengthAreRefused) {
  ASSERT_EQ(start("").status, 0);
  ASSERT_EQ(resume().status, 0);
  ASSERT_EQ(tenon_command("train text " + path("text") + " --length 16 --layers 1 --width 16 " +
                          "--heads 2 --epochs 1 --save " + path("file")).status, 0);
  std::string text(FileBytes(path("text")).view());
  std::reverse(text.begin(), text.end());
  std::ofstream(path("text")) << text;
  expect_refused("its \"data_hash\" is not that of these data");
  const Outcome file = train("--resume " + path("file") + " --save " + path("file"));
  EXPECT_EQ(file.status, 2);
  EXPECT_THAT(file.err, HasSubstr("its \"data_hash\" is not that of these data"));
}

TEST_F(SavedFolder, AFileWhoseOptimiserIsOfAnotherStepIsRefused) {
  const std::string file = path("file");
  ASSERT_EQ(tenon_command("train text " + path("text") + " --length 16 --layers 1 --width 16 " +
                          "--heads 2 --epochs 1 --save " + file).status, 0);
  std::string bytes(FileBytes(file).view());
  const std::size_t step = bytes.find("\"step\":\"") + 8;
  ASSERT_GT(step, 8u);
  bytes[step] = '0';
  std::ofstream(file) << bytes;
  const Outcome run = train("--resume " + file + " --save " + file);
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr(file + ": it was saved after step 0"));
}

TEST_F(SavedFolder, MessagesSayWhatToDoInstead) {
  ASSERT_EQ(start("").status, 0);
  const std::string small = start("--memory-limit 100KiB").err;
  EXPECT_THAT(small, HasSubstr("--memory-limit 100 KiB: this rank needs 2 MiB under caching"));
  EXPECT_THAT(small, HasSubstr("--plan-only --ranks 1 instead"));
  EXPECT_EQ(start("--memory-limit 2MiB").status, 0);
  EXPECT_THAT(start("--slices 3").err, HasSubstr("--slices 3 for 1 rank:"));
  const Outcome file = tenon_command("train text " + path("text") + " --shard 0 --save " +
                                     path("text") + "/run");
  EXPECT_EQ(file.status, 1);
  EXPECT_THAT(file.err, HasSubstr(path("text") + "/run: the folder cannot be made: Not a dir"));
}

TEST_F(SavedFolder, TextIsGeneratedAsFromTheFileOfTheSameRun) {
  const std::string how =
      "--length 16 --layers 1 --width 16 --heads 2 --batch 64 --epochs 2 --seed 3 --save ";
  const Outcome alone = train(how + path("file"));
  const Outcome divided = train(how + path("run") + " --shard 3 --slices 1");
  const auto hash = [](const Outcome& run) {
    return Json::parse(run.out)["weights_hash"].get<std::string>();
  };
  ASSERT_EQ(hash(divided), hash(alone));
  const auto text = [&](const char* name) {
    return tenon_command("generate --count 50 --temperature 0 --prompt the " + path(name));
  };
  EXPECT_EQ(text("run").status, 0) << text("run").err;
  EXPECT_EQ(text("run").out, text("file").out);
  EXPECT_EQ(text("run").out.size(), 3u + 50u + 1u);
}

TEST_F(SavedFolder, ADamagedFileIsNamed) {
  ASSERT_EQ(start("").status, 0);
  const std::string file = shard();
  const std::string whole(FileBytes(file).view());
  std::string changed = whole;
  changed.back() ^= 1;
  std::ofstream(file) << changed;
  expect_unreadable("its tensors are not those that were saved");
  std::ofstream(file) << whole << "more";
  expect_unreadable("were saved");
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  expect_unreadable("it is no regular file");
}

TEST_F(SavedFolder, ADeepIndexTakesLittleMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes more memory than that";
#endif
  ASSERT_EQ(start("").status, 0);
  std::ofstream(index()) << std::string(6 << 20, '[') << std::string(6 << 20, ']');
  const Outcome run = tenon_command("generate " + path("run"), "ulimit -d 300000;");
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr("it is no index"));
}

TEST_F(SavedFolder, WhatIsNoIndexIsNamed) {
  ASSERT_EQ(start("").status, 0);
  const std::string whole(FileBytes(index()).view());
  std::ofstream(index()) << whole << '\0';
  expect_unreadable("it is no JSON at its byte " + std::to_string(whole.size() + 1));
  std::ofstream(index()) << whole.substr(0, 100);
  expect_unreadable("it is no JSON at its byte ");
  std::string changed = whole;
  changed.replace(changed.find("\"batch\": \"64\""), 13, "\"batch\": \"65\"");
  std::ofstream(index()) << changed;
  expect_unreadable("it was changed after it was saved");
  fs::resize_file(index(), 65 << 20);
  expect_unreadable("at most 67108864 are read");
  fs::remove(index());
  fs::create_symlink(index(), index());
  expect_unreadable("Too many levels of symbolic links");
  fs::remove(index());
  ASSERT_EQ(::mkfifo(index().c_str(), 0600), 0);
  expect_unreadable("it is no regular file");
  fs::remove(index());
  fs::create_directory(index());
  expect_unreadable("it is no regular file");
}

TEST_F(SavedFolder, AnIndexThatContradictsItsFilesIsRefused) {
  ASSERT_EQ(start("").status, 0);
  const std::string whole(FileBytes(index()).view());
  const auto expect = [&](const std::string& reason, const std::function<void(Json&)>& change) {
    std::ofstream(index()) << whole;
    edit(change);
    expect_refused(reason);
  };
  expect("its \"total_size\" is 1099511627776", [](Json& json) {
    json["metadata"]["total_size"] = std::uint64_t{1} << 40;
    json["metadata"]["width"] = "8192";
  });
  expect("its tensors hold", [](Json& json) { json["metadata"]["width"] = "8192"; });
  expect("its optimiser after 9", [](Json& json) { json["metadata"]["optimiser_updates"] = 9; });
  for (const auto& [key, value] : {std::pair("epoch_correct", "18446744073709551615"),
                                   std::pair("epoch_counted", "18446744073709551615"),
                                   std::pair("epoch_loss_sum", "-0x1p+1000")})
    expect("its epoch has a loss of",
           [key = key, value = value](Json& json) { json["metadata"][key] = value; });
  expect("its \"learning_rate\" is \"-0x1p-10\"",
         [](Json& json) { json["metadata"]["learning_rate"] = "-0x1p-10"; });
  for (const char* rate : {"nan", "inf", "", "1e", "1 "})
    expect("no number", [&](Json& json) { json["metadata"]["learning_rate"] = rate; });
  for (const auto& [key, value] : {std::pair("epochs", "0"), std::pair("epochs", "1000001"),
                                   std::pair("batch", "0"), std::pair("batch", "65537")})
    expect(fmt::format("its \"{}\" is {}; it may be", key, value),
           [key = key, value = value](Json& json) { json["metadata"][key] = value; });
  expect("which \"files\" does not have", [](Json& json) {
    json["weight_map"].front() = "../text";
  });
  expect("is no file of a checkpoint", [](Json& json) {
    json["files"][std::string("model-\0.safetensors", 19)] = {{"bytes", 1}, {"hash", ""}};
  });
}

}  // namespace
}  // namespace tenon
