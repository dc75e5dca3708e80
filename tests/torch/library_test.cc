// libtenon_torch.so as PyTorch calls it: by its C++ arguments, too.
#include <gmock/gmock.h>

#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "torch/tenon_torch_library.h"

#ifdef TENON_LIBC10
#include <c10/util/Exception.h>
#endif

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::Capture;
using testing::PoolId;
using testing::TenonTorchLibrary;

TEST_F(TenonTorchLibrary, ServesAndTakesBack) {
  void* small = allocate(100);
  void* large = allocate(30 << 20);
  EXPECT_NE(small, nullptr);
  EXPECT_NE(small, large);
  fill(large, 3, 30 << 20, nullptr);
  EXPECT_EQ(first_byte(large), 3);
  EXPECT_EQ(allocate(0), nullptr);
  free(nullptr);
  free(small);
  free(large);
}

TEST_F(TenonTorchLibrary, AForeignPointerIsReportedAndIgnored) {
  ::testing::internal::CaptureStderr();
  int local = 0;
  free(&local);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("not held by tenon_torch"));
  record_stream(&local, nullptr);  // another library's memory, as DLPack brings it
}

TEST_F(TenonTorchLibrary, LackOfMemoryIsAnErrorWithTheNumbers) {
  try {
    allocate(ssize_t{3} << 30);
    FAIL() << "3 GiB on a device of 1 GiB";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("CUDA out of memory. "));
    EXPECT_THAT(error.what(), HasSubstr("3 GiB"));
    EXPECT_THAT(error.what(), HasSubstr("cuda:0"));
  }
  free(allocate(1 << 20));  // and it goes on
}

TEST_F(TenonTorchLibrary, PyTorchsOwnErrorIsThrownWherePyTorchIs) {
#ifdef TENON_LIBC10
  EXPECT_THROW(allocate(ssize_t{3} << 30), c10::OutOfMemoryError);
  try {
    allocate(ssize_t{3} << 30);
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.msg(), HasSubstr("CUDA out of memory. "));
  }
#else
  GTEST_SKIP() << "there is no libc10 (Debian's libtorch-dev) to catch its exception with";
#endif
}

TEST_F(TenonTorchLibrary, ABlockUsedOnAnotherStreamIsNotReusedEarly) {
  const cu::Stream side = make_stream();
  int spoiled = 0;
  for (int i = 0; i < 50; ++i) {
    void* block = allocate(4 << 20);
    fill(block, 1, 4 << 20, nullptr);
    record_stream(block, side);
    fill(block, 2, 4 << 20, side);  // whenever it runs
    free(block);
    void* next = allocate(4 << 20);
    fill(next, 7, 4 << 20, nullptr);
    spoiled += first_byte(next) != 7 ? 1 : 0;
    free(next);
  }
  EXPECT_EQ(spoiled, 0);
}

TEST_F(TenonTorchLibrary, ThreadsAllocateAndFreeEachOthersBlocks) {
  std::vector<void*> handed(4000);
  for (void*& block : handed) block = allocate(5000);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < handed.size(); i += 4) {
        free(handed[i]);
        handed[i] = allocate(3000);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<void*>(handed.begin(), handed.end()).size(), handed.size());
  for (void* block : handed) free(block);
}

// --- Private pools, as torch.cuda.graph uses them.

TEST_F(TenonTorchLibrary, ACapturedGraphKeepsItsMemoryToItself) {
  const auto begin = find<void(int, PoolId, std::function<bool(cu::Stream)>)>(
      "tenon_begin_allocate_to_pool");
  const auto end = find<void(int, PoolId)>("tenon_end_allocate_to_pool");
  const auto release = find<void(int, PoolId)>("tenon_release_pool");
  const PoolId id{0, 1};
  const cu::Stream side = make_stream();
  void* warm = allocate(8 << 20, side);
  fill(warm, 1, 8 << 20, side);
  free(warm, side);

  Capture capture(*driver_, context_, side);
  begin(0, id, [side](cu::Stream stream) { return stream == side; });
  capture.begin();
  void* inside = allocate(8 << 20, side);  // a driver call in the middle of a global-mode capture
  fill(inside, 5, 8 << 20, side);
  free(inside, side);  // but the graph writes it at every launch
  void* again = allocate(8 << 20, side);
  EXPECT_EQ(again, inside) << "within the capture it is reused in stream order";
  fill(again, 6, 8 << 20, side);
  const cu::GraphExec graph = capture.end();
  end(0, id);
  free(again, side);

  // What others get meanwhile is not the graph's.
  void* outside = allocate(8 << 20, side);
  EXPECT_NE(outside, inside);
  fill(outside, 9, 8 << 20, side);
  find<void()>("tenon_reset")();
  for (int i = 0; i < 3; ++i) driver_->call(driver_->graph_launch, graph, side);
  EXPECT_EQ(first_byte(outside), 9);
  EXPECT_EQ(first_byte(inside), 6) << "still there for the graph";

  driver_->call(driver_->graph_exec_destroy, graph);
  release(0, id);
  free(outside, side);
}

TEST_F(TenonTorchLibrary, PoolsEndWithTheirLastUserAndBlock) {
  const auto begin = find<void(int, PoolId, std::function<bool(cu::Stream)>)>(
      "tenon_begin_allocate_to_pool");
  const auto end = find<void(int, PoolId)>("tenon_end_allocate_to_pool");
  const auto release = find<void(int, PoolId)>("tenon_release_pool");
  const PoolId id{7, 0};
  const auto everything = [](cu::Stream) { return true; };
  begin(0, id, everything);
  void* first = allocate(3 << 20);
  end(0, id);
  begin(0, id, everything);
  void* second = allocate(3 << 20);
  end(0, id);
  free(first);
  find<void()>("tenon_reset")();
  EXPECT_EQ(stand_in<std::uint64_t(int)>("stand_in_used")(0), 8u << 20) << "2 pieces of 4 MiB";
  release(0, id);
  release(0, id);
  EXPECT_EQ(stand_in<std::uint64_t(int)>("stand_in_used")(0), 4u << 20) << "the second block's";
  ::testing::internal::CaptureStderr();  // PyTorch calls these in destructors
  release(0, id);
  end(0, id);
  const std::string complaints = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(complaints, HasSubstr("is not in use"));
  EXPECT_THAT(complaints, HasSubstr("is not open"));
  free(second);
  EXPECT_EQ(stand_in<std::uint64_t(int)>("stand_in_used")(0), 0u);
}

}  // namespace
}  // namespace tenon
