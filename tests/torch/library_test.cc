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
  EXPECT_EQ(used(), 8u << 20) << "2 pieces of 4 MiB";
  release(0, id);
  release(0, id);
  EXPECT_EQ(used(), 4u << 20) << "the second block's";
  ::testing::internal::CaptureStderr();  // PyTorch calls these in destructors
  release(0, id);
  end(0, id);
  const std::string complaints = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(complaints, HasSubstr("is not in use"));
  EXPECT_THAT(complaints, HasSubstr("is not open"));
  free(second);
  EXPECT_EQ(used(), 0u);
}

// --- What PyTorch does not wait for: CUDAGraph.cpp releases the pool and then destroys the graph.

class TenonTorchPools : public TenonTorchLibrary {
 protected:
  static void begin(PoolId id, cu::Stream of) {
    find<void(int, PoolId, std::function<bool(cu::Stream)>)>("tenon_begin_allocate_to_pool")(
        0, id, [of](cu::Stream stream) { return stream == of; });
  }
  static void end(PoolId id) { find<void(int, PoolId)>("tenon_end_allocate_to_pool")(0, id); }
  static void release(PoolId id) { find<void(int, PoolId)>("tenon_release_pool")(0, id); }

  void launch(cu::GraphExec graph, cu::Stream on) {
    const CudaScope scope(*driver_, context_);
    driver_->call(driver_->graph_launch, graph, on);
  }
  void destroy(cu::GraphExec graph) {
    const CudaScope scope(*driver_, context_);
    driver_->call(driver_->graph_exec_destroy, graph);
  }

  // A graph that writes 8 MiB of its pool many times over, and the block that it writes.
  cu::GraphExec capture_graph(PoolId id, cu::Stream on, void** block) {
    Capture capture(*driver_, context_, on);
    begin(id, on);
    capture.begin();
    *block = allocate(8 << 20, on);
    for (int i = 0; i < 20; ++i) fill(*block, i, 8 << 20, on);
    const cu::GraphExec graph = capture.end();
    end(id);
    return graph;
  }
};

TEST_F(TenonTorchPools, AGraphThatStillRunsKeepsItsMemory) {
  const cu::Stream side = make_stream();
  const cu::Stream elsewhere = make_stream();
  void* block = nullptr;
  const cu::GraphExec graph = capture_graph({0, 11}, side, &block);
  free(block, side);
  for (int i = 0; i < 5; ++i) launch(graph, elsewhere);
  release({0, 11});
  destroy(graph);
  EXPECT_EQ(used(), 0u);
}

TEST_F(TenonTorchPools, AnOutputThatIsStillReadKeepsItsMemory) {
  const cu::Stream side = make_stream();
  const cu::Stream reader = make_stream();
  void* output = nullptr;
  const cu::GraphExec graph = capture_graph({0, 12}, side, &output);
  launch(graph, side);
  destroy(graph);
  release({0, 12});
  EXPECT_NE(used(), 0u) << "the output lives";
  for (int i = 0; i < 20; ++i) fill(output, i, 8 << 20, reader);
  free(output, side);
  EXPECT_EQ(used(), 0u);
}

TEST_F(TenonTorchPools, NothingGoesBackWhileAnythingMayCapture) {
  const cu::Stream side = make_stream();
  const cu::Stream unknown = make_stream();  // no request has come from it
  void* block = nullptr;
  const cu::GraphExec old = capture_graph({0, 13}, side, &block);
  free(block, side);
  Capture capture(*driver_, context_, unknown);
  begin({0, 14}, unknown);
  capture.begin();
  destroy(old);
  release({0, 13});  // by another thread, in life
  EXPECT_NE(used(), 0u);
  const cu::GraphExec graph = capture.end();  // throws if anything has spoilt it
  end({0, 14});
  EXPECT_EQ(used(), 0u) << "afterwards it goes";
  release({0, 14});
  destroy(graph);
}

// --- Streams that their owners destroy.

TEST_F(TenonTorchLibrary, ADestroyedStreamIsNotAskedAgain) {
  const cu::Stream doomed = make_stream();
  std::vector<void*> blocks;
  for (int i = 0; i < 30; ++i) {
    blocks.push_back(allocate(30 << 20, doomed));
    fill(blocks.back(), 1, 30 << 20, doomed);
  }
  void* lent = allocate(4 << 20);
  record_stream(lent, doomed);
  fill(lent, 5, 4 << 20, doomed);
  for (std::size_t i = 0; i < blocks.size(); i += 2) free(blocks[i], doomed);
  destroy_stream(doomed);  // its work goes on
  for (std::size_t i = 1; i < blocks.size(); i += 2) free(blocks[i], doomed);
  free(lent);
  void* large = allocate(700 << 20);  // takes the pages of the stream that is gone
  fill(large, 7, 700 << 20, nullptr);
  EXPECT_EQ(first_byte(large), 7);
  find<void()>("tenon_reset")();
  free(large);
}

TEST_F(TenonTorchLibrary, AStreamWithADestroyedOnesHandleWaitsForItsWork) {
  int spoilt = 0;
  for (int i = 0; i < 20; ++i) {
    const cu::Stream first = make_stream();
    void* block = allocate(8 << 20, first);
    for (int n = 0; n < 10; ++n) fill(block, 1, 8 << 20, first);
    free(block, first);
    destroy_stream(first);
    const cu::Stream second = make_stream();
    EXPECT_EQ(second, first) << "the stand-in hands out a handle again";
    void* next = allocate(8 << 20, second);
    fill(next, 2, 8 << 20, second);
    spoilt += first_byte(next) != 2 ? 1 : 0;
    free(next, second);
    destroy_stream(second);
  }
  EXPECT_EQ(spoilt, 0);
}

TEST_F(TenonTorchLibrary, PyTorchsOwnStreamsAreOrderedWithoutAWaitForTheDevice) {
  const auto waits_of = [this](bool own) {
    const cu::Stream side = make_stream();
    set_current(side, own);
    void* block = allocate(600 << 20, side);
    fill(block, 1, 600 << 20, side);
    free(block, side);
    set_current(nullptr, false);
    const std::uint64_t before = calls("cuCtxSynchronize");
    void* large = allocate(700 << 20);
    const std::uint64_t waits = calls("cuCtxSynchronize") - before;
    free(large);
    find<void()>("tenon_reset")();
    return waits;
  };
  EXPECT_EQ(waits_of(true), 0u);
  EXPECT_GT(waits_of(false), 0u) << "its owner may have destroyed it";
}

// --- Streams of other devices.

TEST_F(TenonTorchLibrary, ABlockUsedByAnotherDeviceIsNotReusedEarly) {
  free(allocate(1 << 20, nullptr, 1), nullptr, 1);  // the second device is in use
  const cu::Stream theirs = make_stream(1);
  for (const cu::Stream user : {theirs, cu::Stream{nullptr}}) {
    int spoilt = 0;
    for (int i = 0; i < 20; ++i) {
      void* block = allocate(4 << 20);
      fill(block, 1, 4 << 20, nullptr);
      record_stream(block, user);
      for (int n = 0; n < 10; ++n) fill(block, 2, 4 << 20, user, 1);
      free(block);
      void* next = allocate(4 << 20);
      fill(next, 7, 4 << 20, nullptr);
      spoilt += first_byte(next) != 7 ? 1 : 0;
      free(next);
    }
    EXPECT_EQ(spoilt, 0) << (user == nullptr ? "default stream" : "a stream of its own");
  }
  void* held = allocate(600 << 20);
  record_stream(held, theirs);
  fill(held, 3, 600 << 20, theirs, 1);
  free(held);
  free(allocate(700 << 20));  // does not fit beside it, so it is waited for
  EXPECT_EQ(used(1), 2u << 20) << "nothing of the second device was given back meanwhile";
  find<void()>("tenon_reset")();
}

}  // namespace
}  // namespace tenon
