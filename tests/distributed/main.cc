// Every rank runs every test; rank 0 prints, and another one where a test fails there.
#include <gtest/gtest.h>

#include <cstdio>

#include "world.h"

namespace tenon::distributed::testing {

std::shared_ptr<ProcessGroup> world;

}  // namespace tenon::distributed::testing

namespace {

class OnlyFailures : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", tenon::distributed::testing::world->rank(),
                 result.file_name() == nullptr ? "" : result.file_name(), result.line_number(),
                 result.message());
  }
};

}  // namespace

int main(int argc, char** argv) {
  using tenon::distributed::testing::world;
  ::testing::InitGoogleTest(&argc, argv);
  constexpr double kTimeoutSeconds = 60;
  const tenon::distributed::MpiSession session(kTimeoutSeconds);
  world = session.world();
  if (world->rank() != 0) {
    ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new OnlyFailures);
  }
  const int status = RUN_ALL_TESTS();
  world.reset();
  return status;
}
