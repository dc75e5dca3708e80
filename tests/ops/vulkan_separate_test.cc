// Operators on a Vulkan device whose memory is separate from the host's. The process has one
// device, so each test runs in a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "ops/reference.h"
#include "support/temporary.h"
#include "support/vulkan.h"
#include "tenon/autograd/autograd.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/capture.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/interop/safetensors.h"
#include "tenon/tensor/print.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

constexpr Device kVulkan{DeviceType::kVulkan, 0};

class VulkanSeparateMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    testing::choose_process_device();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  // Ends the process with 0 where the checks held, else says on standard error what did not. The
  // driver's exit handlers may hang.
  [[noreturn]] static void run(void (*checks)()) {
    ::setenv("TENON_VULKAN_STAGE", "1", 1);
    try {
      checks();
      EXPECT_EQ(VulkanDriver::standard()->validation_messages(), 0u);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    const auto& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
    for (int i = 0; i < result.total_part_count(); ++i)
      std::fprintf(stderr, "%s\n", result.GetTestPartResult(i).summary());
    ::_exit(result.Failed() ? 1 : 0);
  }
};

template <typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void tensors_move_compute_and_print() {
  EXPECT_FALSE(host_reaches(kVulkan));
  EXPECT_TRUE(has_operators(kVulkan));
  const Tensor here = arange(6, DType::kF32).view({2, 3});
  const Tensor there = to(here, kVulkan);
  EXPECT_EQ(testing::values(to(ops::add(there, there), Device{})),
            testing::values(ops::add(here, here)));
  EXPECT_EQ(there.select(0, 1).select(0, 2).item<float>(), 5.0f);
  EXPECT_EQ(to_string(there.t()),
            "tensor([[0., 3.],\n        [1., 4.],\n        [2., 5.]], device=vulkan:0)");
  // Another order and dtype on either side.
  EXPECT_EQ(testing::values(to(there.t(), Device{})), testing::values(here.t()));
  const Tensor whole = empty({3, 2}, DType::kI64, kVulkan);
  copy_(whole.t(), here);
  EXPECT_EQ(testing::values(to(whole, Device{})), testing::values(here.t()));
  Generator a(3), b(3);
  EXPECT_EQ(
      testing::values(to(bernoulli_(empty({99}, DType::kF32, kVulkan), 0.4, a), Device{})),
      testing::values(bernoulli_(empty({99}, DType::kF32), 0.4, b)));
  EXPECT_EQ(ops::sum(zeros({0, 3}, DType::kF32, kVulkan)).item<float>(), 0.0f);
}

void gradients_flow_and_files_are_written() {
  const Tensor x = to(ones({2, 2}, DType::kF32), kVulkan).set_requires_grad(true);
  autograd::backward(ops::sum(ops::mul(ops::matmul(x, x), 2.0)));
  EXPECT_EQ(testing::values(to(x.grad(), Device{})), std::vector<double>(4, 8.0));
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/x.safetensors";
  save_safetensors(path, {{"x", x.detach()}});
  EXPECT_EQ(testing::values(load_safetensors(path).tensors.at("x")), std::vector<double>(4, 1.0));
  Tensor sum;
  Capture capture(kVulkan, [&] { sum = ops::add(x.detach(), 1.0); });
  fill_(x.detach(), 4);
  capture.run();
  EXPECT_EQ(testing::values(to(sum, Device{})), std::vector<double>(4, 5.0));
}

void what_needs_the_host_is_refused() {
  const Tensor t = to(arange(6, DType::kF32), kVulkan);
  EXPECT_EQ(message_of([&] { static_cast<void>(t.data_ptr<float>()); }),
            "the host does not reach the memory of vulkan:0; copy the tensor to the cpu");
  EXPECT_EQ(message_of([&] { static_cast<void>(t[{to(zeros({2}, DType::kI64), kVulkan)}]); }),
            "indexing by tensors needs the host, which does not reach the memory of vulkan:0: copy "
            "the tensor to the cpu, or call index_select, gather_elements or masked_fill");
  EXPECT_EQ(message_of([&] { ops::mul(t, to(ones({6}, DType::kC64), kVulkan)); }),
            "mul: vulkan:0 has no kernel for it, and the host does not reach its memory; copy the "
            "tensors to the cpu");
  const Tensor large = t.select(0, 1).view({1, 1}).expand({std::int64_t{1} << 16,
                                                           std::int64_t{1} << 16});
  EXPECT_EQ(message_of([&] { static_cast<void>(ops::sum(large)); }),
            "sum: vulkan:0 has no kernel for it, and the host does not reach its memory; copy the "
            "tensors to the cpu")
      << "2^32 elements";
  // A kernel's complaint is told by the copy that waits for it.
  Tensor index = empty({1}, DType::kI64);
  index.data_ptr<std::int64_t>()[0] = 9;
  const Tensor taken = ops::index_select(t, 0, to(index, kVulkan));
  EXPECT_EQ(message_of([&] { static_cast<void>(taken.item<float>()); }),
            "index_select: index 9 for a dimension of size 6");
  EXPECT_THAT(message_of([&] { Capture(kVulkan, [&] { static_cast<void>(t[0].item()); }); }),
              HasSubstr("Capture: the step needs the host for a tensor's values"));
  EXPECT_EQ(t[5].item<float>(), 5.0f);
}

TEST_F(VulkanSeparateMemory, TensorsMoveComputeAndPrint) {
  EXPECT_EXIT(run(&tensors_move_compute_and_print), ::testing::ExitedWithCode(0), "");
}

TEST_F(VulkanSeparateMemory, GradientsFlowAndFilesAreWritten) {
  EXPECT_EXIT(run(&gradients_flow_and_files_are_written), ::testing::ExitedWithCode(0), "");
}

TEST_F(VulkanSeparateMemory, WhatNeedsTheHostIsRefused) {
  EXPECT_EXIT(run(&what_needs_the_host_is_refused), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tenon
