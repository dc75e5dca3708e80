// Files are written whole or not at all, and what is no file stays what it is.
#include "tenon/base/file_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "support/temporary.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void make(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

mode_t mode_of(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_mode;
}

std::size_t entries(const std::string& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

std::string message_of(const std::string& path) {
  try {
    write_whole_file(path, "x");
  } catch (const std::system_error& error) {
    return error.what();
  }
  return "";
}

class FileWriterTest : public ::testing::Test {
 protected:
  std::string in(const std::string& name) const { return folder_.path() + "/" + name; }
  const testing::TemporaryFolder folder_;
};

TEST_F(FileWriterTest, ANewFileGetsTheModeThatTheProcessGives) {
  const mode_t before = ::umask(027);
  write_whole_file(in("new"), "text");
  ::umask(before);
  EXPECT_EQ(contents(in("new")), "text");
  EXPECT_EQ(mode_of(in("new")) & 07777, 0640u);
  EXPECT_EQ(entries(folder_.path()), 1u);
}

TEST_F(FileWriterTest, AnEarlierFileKeepsItsMode) {
  make(in("secret"), "old");
  ::chmod(in("secret").c_str(), 0600);
  write_whole_file(in("secret"), "new");
  EXPECT_EQ(contents(in("secret")), "new");
  EXPECT_EQ(mode_of(in("secret")) & 07777, 0600u);
  EXPECT_EQ(entries(folder_.path()), 1u);
}

TEST_F(FileWriterTest, NothingIsSeenBeforeCommit) {
  make(in("file"), "old");
  {
    FileWriter file(in("file"));
    file.write("half");
    EXPECT_EQ(contents(in("file")), "old");
  }
  EXPECT_EQ(contents(in("file")), "old");
  EXPECT_EQ(entries(folder_.path()), 1u);
}

TEST_F(FileWriterTest, FollowsLinksAndLeavesThem) {
  fs::create_directory(in("there"));
  make(in("there/file"), "old");
  ::chmod(in("there/file").c_str(), 0640);
  fs::create_symlink("there/file", in("inner"));
  fs::create_symlink(in("inner"), in("outer"));
  write_whole_file(in("outer"), "new");
  EXPECT_TRUE(S_ISLNK(mode_of(in("outer"))));
  EXPECT_TRUE(S_ISLNK(mode_of(in("inner"))));
  EXPECT_EQ(contents(in("there/file")), "new");
  EXPECT_EQ(mode_of(in("there/file")) & 07777, 0640u);
  EXPECT_EQ(entries(in("there")), 1u);
}

TEST_F(FileWriterTest, ALinkToNothingGetsAFile) {
  fs::create_symlink("later", in("link"));
  write_whole_file(in("link"), "text");
  EXPECT_TRUE(S_ISLNK(mode_of(in("link"))));
  EXPECT_EQ(contents(in("later")), "text");
}

TEST_F(FileWriterTest, LinksInACircleAreRefused) {
  fs::create_symlink("b", in("a"));
  fs::create_symlink("a", in("b"));
  EXPECT_THAT(message_of(in("a")), HasSubstr("levels of symbolic links"));
}

TEST_F(FileWriterTest, DevicesStayDevices) {
  const mode_t before = mode_of("/dev/null");
  write_whole_file("/dev/null", "text");
  EXPECT_EQ(mode_of("/dev/null"), before);
  EXPECT_TRUE(S_ISCHR(mode_of("/dev/null")));
  fs::create_symlink("/dev/null", in("link"));
  write_whole_file(in("link"), "text");
  EXPECT_TRUE(S_ISLNK(mode_of(in("link"))));
  EXPECT_TRUE(S_ISCHR(mode_of("/dev/null")));
}

TEST_F(FileWriterTest, AFullDeviceIsAnErrorWithPathAndReason) {
  EXPECT_EQ(message_of("/dev/full"), "/dev/full: cannot be written: No space left on device");
}

TEST_F(FileWriterTest, AFifoIsWrittenToAndStays) {
  ASSERT_EQ(::mkfifo(in("pipe").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = contents(in("pipe")); });
  const std::string text(300'000, 'x');
  write_whole_file(in("pipe"), text);
  reader.join();
  EXPECT_EQ(read, text);
  EXPECT_TRUE(S_ISFIFO(mode_of(in("pipe"))));
}

TEST_F(FileWriterTest, AnOwnDescriptorGetsTheBytesWhereItStands) {
  make(in("log"), "first,");
  const int file = ::open(in("log").c_str(), O_WRONLY | O_APPEND);
  write_whole_file("/proc/self/fd/" + std::to_string(file), "second,");
  write_whole_file("/dev/fd/" + std::to_string(file), "third");
  ::close(file);
  EXPECT_EQ(contents(in("log")), "first,second,third");
  const int only_read = ::open(in("log").c_str(), O_RDONLY);
  EXPECT_THAT(message_of("/dev/fd/" + std::to_string(only_read)), HasSubstr("Bad file descriptor"));
  ::close(only_read);
}

TEST_F(FileWriterTest, FoldersAndMissingFoldersAreRefused) {
  EXPECT_THAT(message_of(folder_.path()), HasSubstr("Is a directory"));
  EXPECT_THAT(message_of(folder_.path() + "/"), HasSubstr("Is a directory"));
  EXPECT_THAT(message_of(in("no/file")), HasSubstr("No such file"));
  EXPECT_THAT(message_of(""), HasSubstr("No such file"));
  EXPECT_THROW(FileWriter::check(in("no/file")), std::system_error);
  EXPECT_EQ(entries(folder_.path()), 0u);
}

TEST_F(FileWriterTest, AFileThatMayNotBeWrittenIsNotReplaced) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everything";
  make(in("file"), "old");
  ::chmod(in("file").c_str(), 0400);
  EXPECT_THAT(message_of(in("file")), HasSubstr("Permission denied"));
  EXPECT_EQ(contents(in("file")), "old");
}

TEST_F(FileWriterTest, CheckingChangesNothing) {
  FileWriter::check(in("file"));
  EXPECT_EQ(entries(folder_.path()), 0u);
  FileWriter::check("/dev/null");
}

// A writer that dies leaves at most a name whose lock is free; a living one's is not touched.
TEST_F(FileWriterTest, TheNextWriterRemovesWhatAKilledOneLeft) {
  make(in("file.1-0.tenon-tmp"), "left over");
  make(in("file.txt"), "another file");
  make(in("other.1-0.tenon-tmp"), "of another file");
  make(in("file.my-notes.tenon-tmp"), "not a writer's");
  make(in("file.2-0.tenon-tmp"), "held");
  const int held = ::open(in("file.2-0.tenon-tmp").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  write_whole_file(in("file"), "text");
  EXPECT_FALSE(fs::exists(in("file.1-0.tenon-tmp")));
  EXPECT_TRUE(fs::exists(in("file.txt")));
  EXPECT_TRUE(fs::exists(in("other.1-0.tenon-tmp")));
  EXPECT_TRUE(fs::exists(in("file.my-notes.tenon-tmp")));
  EXPECT_TRUE(fs::exists(in("file.2-0.tenon-tmp")));
  ::close(held);
  write_whole_file(in("file"), "text");
  EXPECT_FALSE(fs::exists(in("file.2-0.tenon-tmp")));
}

TEST_F(FileWriterTest, KilledWritersLeaveTheFileWholeAndNothingElse) {
  make(in("file"), std::string(1 << 20, '0'));
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (char c = 'a';; c = c == 'z' ? 'a' : static_cast<char>(c + 1))
        write_whole_file(in("file"), std::string(1 << 20, c));
    }
    ::usleep(static_cast<useconds_t>(3'000 + 1'700 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::string now = contents(in("file"));
    ASSERT_EQ(now.size(), std::size_t{1} << 20);
    ASSERT_EQ(now.find_first_not_of(now[0]), std::string::npos);
  }
  write_whole_file(in("file"), "end");
  EXPECT_EQ(contents(in("file")), "end");
  EXPECT_EQ(entries(folder_.path()), 1u);
}

TEST_F(FileWriterTest, ManyWritersOfOneNameDoNotMeet) {
  std::vector<std::thread> writers;
  for (char c = 'a'; c < 'e'; ++c)
    writers.emplace_back([&, c] {
      for (int i = 0; i < 20; ++i) write_whole_file(in("file"), std::string(10'000, c));
    });
  for (std::thread& writer : writers) writer.join();
  const std::string now = contents(in("file"));
  EXPECT_EQ(now.size(), 10'000u);
  EXPECT_EQ(now.find_first_not_of(now[0]), std::string::npos);
  EXPECT_EQ(entries(folder_.path()), 1u);
}

}  // namespace
}  // namespace tenon
