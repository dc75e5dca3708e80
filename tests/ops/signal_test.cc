// A signal may come at any instruction, so the stack pointer must point into the thread's stack at
// each of them: src/tenon/ops/kernels/cpu/gemm.cc, Note [Signals in generated code].

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "ops/reference.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/operators.h"

namespace tenon {
namespace {

using testing::random_floats;

std::uintptr_t stack_begin, stack_end;
std::atomic<int> signals_seen, stack_pointers_outside;

std::uintptr_t stack_pointer(const void* context) {
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(registers.gregs[REG_RSP]);
#else
  return registers.sp;
#endif
}

void look_at_stack_pointer(int, siginfo_t*, void* context) {
  const std::uintptr_t pointer = stack_pointer(context);
  ++signals_seen;
  if (pointer < stack_begin || pointer >= stack_end) ++stack_pointers_outside;
}

// Takes signals on a stack of their own, so that a stack pointer elsewhere does no harm here.
class SignalsOnTheirOwnStack {
 public:
  SignalsOnTheirOwnStack() : stack_(64 * 1024 + SIGSTKSZ) {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* begin = nullptr;
    std::size_t bytes = 0;
    pthread_attr_getstack(&attributes, &begin, &bytes);
    pthread_attr_destroy(&attributes);
    stack_begin = reinterpret_cast<std::uintptr_t>(begin);
    stack_end = stack_begin + bytes;
    const stack_t ours{.ss_sp = stack_.data(), .ss_flags = 0, .ss_size = stack_.size()};
    sigaltstack(&ours, &stack_before_);
    struct sigaction action {};
    action.sa_sigaction = look_at_stack_pointer;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(SIGUSR1, &action, &action_before_);
  }
  ~SignalsOnTheirOwnStack() {
    sigaction(SIGUSR1, &action_before_, nullptr);
    sigaltstack(&stack_before_, nullptr);
  }

 private:
  std::vector<char> stack_;
  stack_t stack_before_{};
  struct sigaction action_before_ {};
};

// Sends the calling thread signals while `work` is repeated, until it has seen `wanted` of them.
void repeat_under_signals(int wanted, const std::function<void()>& work) {
  SignalsOnTheirOwnStack signals;
  signals_seen = stack_pointers_outside = 0;
  std::atomic<bool> done = false;
  std::thread sender([&, computing = pthread_self()] {
    while (!done) {
      pthread_kill(computing, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  while (signals_seen < wanted) work();
  done = true;
  sender.join();
}

class SignalTest : public ::testing::Test {
 protected:
  // The kernels then run on the thread that is looked at.
  SignalTest() : threads_before_(num_threads()) { set_num_threads(1); }
  ~SignalTest() override { set_num_threads(threads_before_); }

  Random random_{8};

 private:
  int threads_before_;
};

TEST_F(SignalTest, StackPointerStaysInTheStackDuringProducts) {
  // (rows, columns, depth), among them products with a vector and each layout of the operands.
  for (const auto& [m, n, k] :
       std::vector<std::array<std::int64_t, 3>>{{32, 64, 64},
                                                {64, 10, 128},
                                                {26, 26, 26},
                                                {1, 256, 256},
                                                {256, 1, 256},
                                                {128, 96, 200},
                                                {300, 260, 140}})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const int order : {0, 1, 2, 3}) {
        SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k);
        const Tensor a = order % 2 != 0 ? random_floats(random_, {k, m}, dtype).transpose(0, 1)
                                        : random_floats(random_, {m, k}, dtype);
        const Tensor b = order / 2 != 0 ? random_floats(random_, {n, k}, dtype).transpose(0, 1)
                                        : random_floats(random_, {k, n}, dtype);
        repeat_under_signals(300, [&] { ops::matmul(a, b); });
        EXPECT_EQ(stack_pointers_outside, 0) << "of " << signals_seen << " signals";
      }
}

TEST_F(SignalTest, StackPointerStaysInTheStackDuringConvolutions) {
  struct Layer {
    std::int64_t channels, filters, kernel, stride;
  };
  for (const Layer& l : {Layer{3, 5, 3, 1}, Layer{3, 16, 3, 1}, Layer{3, 32, 7, 2},
                         Layer{32, 64, 3, 1}, Layer{64, 96, 1, 2}}) {
    SCOPED_TRACE(::testing::Message() << l.channels << " to " << l.filters << ", " << l.kernel);
    const Tensor images = random_floats(random_, {8, l.channels, 28, 28}, DType::kF32);
    const Tensor weight =
        random_floats(random_, {l.filters, l.channels, l.kernel, l.kernel}, DType::kF32);
    ops::ConvOptions options;
    options.stride = l.stride;
    const Tensor out = ops::conv2d(images, weight, {}, options);
    const Tensor gradient = random_floats(random_, out.sizes(), DType::kF32);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Tensor a = to(images, dtype), w = to(weight, dtype), g = to(gradient, dtype);
      repeat_under_signals(300, [&] { ops::conv2d(a, w, {}, options); });
      EXPECT_EQ(stack_pointers_outside, 0) << "forward, of " << signals_seen << " signals";
      repeat_under_signals(300, [&] { ops::conv_transpose2d(g, w, {}, options); });
      EXPECT_EQ(stack_pointers_outside, 0) << "back, of " << signals_seen << " signals";
    }
    repeat_under_signals(300, [&] {
      ops::detail::conv2d_weight_gradient(gradient, images, weight.sizes(), options);
    });
    EXPECT_EQ(stack_pointers_outside, 0) << "weight's gradient, of " << signals_seen << " signals";
  }
}

}  // namespace
}  // namespace tenon
