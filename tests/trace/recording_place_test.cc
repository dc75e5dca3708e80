#include "tenon/trace/recording_place.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "support/temporary.h"
#include "tenon/base/file_writer.h"

namespace tenon {
namespace {

TEST(RecordingPlace, KeepsWhatAnotherProcessWroteMeanwhile) {
  const testing::TemporaryFile file(".csv", "from an earlier run");
  const RecordingPlace place(file.path());
  EXPECT_FALSE(place.is_anothers());
  write_whole_file(file.path(), "from another process");
  EXPECT_TRUE(place.is_anothers());
  const std::string stem = file.path().substr(0, file.path().size() - 4);
  EXPECT_EQ(place.own_path(), fmt::format("{}.{}.csv", stem, ::getpid()));
  EXPECT_FALSE(RecordingPlace(file.path()).is_anothers());
}

TEST(RecordingPlace, HasTheProcessNumberWhereItIsAskedFor) {
  EXPECT_EQ(RecordingPlace("/a.b/run.%p.csv.zst").path(),
            fmt::format("/a.b/run.{}.csv.zst", ::getpid()));
  EXPECT_FALSE(RecordingPlace("/dev/stdout").is_anothers());
}

TEST(RecordingPlace, IsAForkedChildsOwnWhereTheProcessNumberIsAskedFor) {
  const testing::TemporaryFile file(".csv", "the parent's");
  const RecordingPlace shared(file.path());
  const RecordingPlace numbered("/run.%p.csv");
  const pid_t child = ::fork();
  if (child == 0) {
    const bool numbered_anew = numbered.path() == fmt::format("/run.{}.csv", ::getpid());
    ::_exit(shared.is_anothers() && !numbered.is_anothers() && numbered_anew ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(RecordingPlace, WaitsForAnothersTurnAndNotForEver) {
  const testing::TemporaryFile file(".csv");
  const RecordingPlace place(file.path());
  std::atomic<bool> over{false};
  std::optional<RecordingPlace::Turn> first(std::in_place, place);
  std::thread second([&] {
    const RecordingPlace::Turn turn(place);
    EXPECT_TRUE(over);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  over = true;
  first.reset();
  second.join();
  first.emplace(place);
  const RecordingPlace::Turn without(place);  // a second later
}

}  // namespace
}  // namespace tenon
