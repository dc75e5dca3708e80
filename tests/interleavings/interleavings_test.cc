// The biased locks and the frees by other threads in all interleavings of three threads, and
// variants with one fault each, which must fail there.
#include "interleavings_code.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

namespace tenon::stepped {
namespace {

// Threads that enter a BiasedLock, which each may own for a while: the second by a guard.
template <typename Code, int... kRounds>
struct Entering {
  static constexpr std::size_t kThreads = 3;

  void run(std::size_t thread) {
    constexpr std::array<int, kThreads> kTimes = {kRounds...};
    for (int i = 0; i < kTimes[thread]; ++i) {
      Stepper::current().forget(3 * i);
      if (thread == 1) {
        const typename Code::Guard guard(lock);
        count = count + 1;
      } else {
        lock.lock();
        Stepper::current().forget(3 * i + 1);
        count = count + 1;
        Stepper::current().forget(3 * i + 2);
        lock.unlock();
      }
    }
  }
  void finish() { require(count == Value{(kRounds + ...)}, "two threads were inside at once"); }

  typename Code::Lock lock;
  Cell<Value> count = 0;
};

template <typename Code>
using ThreeEnter = Entering<Code, 2, 1, 1>;
template <typename Code>
using TwoEnterTwice = Entering<Code, 2, 2, 0>;

// An owner that resigns, a visitor, and an heir, who visits where the owner has not resigned yet.
template <typename Code>
struct Resigning {
  static constexpr std::size_t kThreads = 3;

  void run(std::size_t thread) {
    if (thread == 0 || (thread == 2 && resigned.load(std::memory_order_acquire))) own();
    Stepper::current().forget(1);
    enter();
    Stepper::current().forget(4);
    if (thread != 0) return;
    lock.resign();
    resigned.store(true, std::memory_order_release);
  }
  void finish() { require(count == Value{3}, "two threads were inside at once"); }

  void own() {
    lock.lock();
    lock.become_owner();
    lock.unlock();
  }
  void enter() {
    lock.lock();
    Stepper::current().forget(2);
    count = count + 1;
    Stepper::current().forget(3);
    lock.unlock();
  }

  typename Code::Appointed lock;
  Atomic<bool> resigned{false};
  Cell<Value> count = 0;
};

// A heap as StreamFront uses it: who allocates adopts it and takes the frees by other threads. The
// last thread is its user at first.
template <typename Code>
struct FreeingFromAfar {
  static constexpr std::size_t kThreads = 3;

  struct Block {
    Cell<Block*> link = nullptr;
    Cell<Value> uses = 1;
  };
  struct Heap : Code::Heap {
    using Handle = Block*;
    // Of an allocator that nothing here asks.
    Heap() : Code::Heap(reinterpret_cast<typename Code::Allocator&>(*this), {}) {}
    static Cell<Block*>& link_of(Block* block) { return block->link; }
    void release(Block* block) {
      block->uses = block->uses - 1;
      block->link = idle;
      idle = block;
    }
    Cell<Block*> idle = nullptr;
  };

  void run(std::size_t thread) {
    if (thread == 0) return place();
    if (thread == 2) heap.adopt();
    free(&blocks[thread - 1]);
  }
  void finish() {
    Heap::drain_remote_frees(heap);
    for (Block* block = heap.idle; block != nullptr; block = block->link)
      block->uses = block->uses + 1;
    for (const Block& block : blocks)
      require(block.uses == Value{1}, "a block was lost, or is in use twice");
  }

  void place() {
    const typename Code::Guard guard(heap.lock);
    heap.adopt();
    Heap::drain_remote_frees(heap);
    Block* const block = heap.idle;
    if (block == nullptr) return;
    heap.idle = block->link;
    block->uses = block->uses + 1;
  }
  void free(Block* block) {
    if (!heap.is_owned_by_this_thread()) return heap.push_remote_free(block, block->link);
    const typename Code::Guard guard(heap.lock);
    heap.release(block);
  }

  Heap heap;
  std::array<Block, 2> blocks;
};

// The first and the second thread leave memory idle so many times and wake the third. That gives it
// back and sleeps. The first ends it when all is given back.
template <typename Code, int... kTimes>
struct GivingBack {
  static constexpr std::size_t kThreads = 3;

  void run(std::size_t thread) {
    if (thread == 2) return decay.state_->thread.serve();
    for (int i = 0; i < std::array{kTimes...}[thread]; ++i) leave_idle(i);
    if (thread == 1) return;
    while (given_back != Value{(kTimes + ...)}) {
      Stepper::current().forget(4);
      Stepper::current().wait();
    }
    decay.~Decay();
    has_ended = true;
  }
  void finish() { require(idle == Value{0}, "idle memory stays"); }

  void leave_idle(int i) {
    Stepper::current().forget(2 * i);
    {
      const std::lock_guard lock(books);
      idle = idle + 1;
    }
    Stepper::current().forget(2 * i + 1);
    decay.wake();
  }
  bool look_around() {
    Stepper::current().forget(5);
    require(!has_ended, "a look around after the end");
    const std::lock_guard lock(books);
    if (idle == Value{0}) return false;
    given_back = given_back + idle;
    idle = 0;
    return true;
  }

  using Decay = typename Code::Decay;
  Decay decay{std::chrono::nanoseconds(1), [this] { return look_around(); }};
  typename Code::Books books;
  Plain<Value> idle = 0;
  Atomic<Value> given_back = 0;
  Plain<bool> has_ended = false;
};

template <typename Code>
using OneLeavesIdleTwice = GivingBack<Code, 2, 0>;
template <typename Code>
using AnotherLeavesIdle = GivingBack<Code, 0, 1>;

template <template <typename> typename Scenario, typename Code>
void expect_sound() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not follow fibers";
#endif
  const Result result = Stepper::explore<Scenario<Code>>();
  EXPECT_EQ(result.failure, "");
  fmt::print("{} executions, {} states\n", result.executions, result.states);
  EXPECT_GT(result.states, 1000u);
}
template <template <typename> typename Scenario, typename Code>
void expect_broken() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not follow fibers";
#endif
  EXPECT_NE(Stepper::explore<Scenario<Code>>().failure, "");
}

TEST(Interleavings, BiasedLockLetsOneInside) {
  expect_sound<ThreeEnter, sound_code>();
  expect_sound<TwoEnterTwice, sound_code>();
}
TEST(Interleavings, AppointedLockLetsOneInside) {
  expect_sound<Resigning, sound_code>();
}
TEST(Interleavings, NoBlockIsLostBetweenThreads) { expect_sound<FreeingFromAfar, sound_code>(); }

TEST(Interleavings, NoIdleMemoryIsForgotten) {
  expect_sound<OneLeavesIdleTwice, sound_code>();
  expect_sound<AnotherLeavesIdle, sound_code>();
}

TEST(Interleavings, FindAMissingBarrier) {
  expect_broken<ThreeEnter, without_barrier_code>();
  expect_broken<Resigning, without_barrier_code>();
}
TEST(Interleavings, FindARevokerThatDoesNotWait) {
  expect_broken<ThreeEnter, without_wait_code>();
  expect_broken<Resigning, without_wait_code>();
}
TEST(Interleavings, FindAnOwnerThatDoesNotLook) {
  expect_broken<ThreeEnter, without_look_code>();
}
TEST(Interleavings, FindARelaxedEnd) {
  expect_broken<ThreeEnter, relaxed_leave_code>();
  expect_broken<ThreeEnter, relaxed_unlock_code>();
}
TEST(Interleavings, FindARelaxedResignation) {
  expect_broken<Resigning, relaxed_grant_code>();
}
TEST(Interleavings, FindABiasThatIsGivenOnTooEarly) {
  expect_broken<TwoEnterTwice, reused_bias_code>();
}
TEST(Interleavings, FindAMissingRevocation) {
  expect_broken<Resigning, without_revocation_code>();
}
TEST(Interleavings, FindALinkThatComesLate) { expect_broken<FreeingFromAfar, relaxed_push_code>(); }
TEST(Interleavings, FindASleepThatBeginsAfterTheLook) {
  expect_broken<OneLeavesIdleTwice, asleep_too_late_code>();
}
TEST(Interleavings, FindAWakeWithoutANotice) {
  expect_broken<OneLeavesIdleTwice, without_notice_code>();
}
TEST(Interleavings, FindASleeperThatDoesNotStop) {
  expect_broken<AnotherLeavesIdle, without_stop_code>();
}

}  // namespace
}  // namespace tenon::stepped
