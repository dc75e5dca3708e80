// Operators on a Vulkan device whose memory is separate from the host's. The process has one
// device, so each test runs in a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "ops/reference.h"
#include "support/temporary.h"
#include "support/vulkan.h"
#include "tenon/autograd/autograd.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/registry.h"
#include "tenon/ops/operators.h"
#include "tenon/ops/into.h"
#include "tenon/tensor/capture.h"
#include "tenon/tensor/copy_on_write.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/interop/safetensors.h"
#include "tenon/tensor/print.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

using testing::kVulkan;

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

HostFallback count_of(const std::string& name) {
  for (const HostFallback& each : fallbacks())
    if (each.name == name) return each;
  return {name};
}

// What one call adds to the counts of an operator.
template <typename Call>
HostFallback counted(const std::string& name, Call&& call) {
  const HostFallback before = count_of(name);
  call();
  const HostFallback after = count_of(name);
  return {name, after.calls - before.calls, after.copied_bytes - before.copied_bytes};
}

// The same call on the host's tensors and on the device's gives the same values.
void expect_the_hosts(const char* what, const std::function<Tensor(Device)>& call) {
  EXPECT_EQ(testing::values(to(call(kVulkan), Device{})), testing::values(call(Device{}))) << what;
}

void the_host_computes_what_has_no_kernel() {
  const Tensor c = to(to(arange(6, DType::kF32), DType::kC64), kVulkan);
  Tensor product;
  const HostFallback mul = counted("mul", [&] { product = ops::mul(c, c); });
  EXPECT_EQ(mul.calls, 1u);
  EXPECT_EQ(mul.copied_bytes, 2u * 6 * 8) << "an argument there, once, and the result back";
  EXPECT_EQ(to(product, Device{}).select(0, 5).item<Complex64>(), Complex64(25.0f));
  EXPECT_THROW(static_cast<void>(product.const_data_ptr()), InvalidArgument) << "the turn is over";
  {
    StatisticsAdaptor host(*current_allocator(Device{}));
    const AllocatorGuard guard(Device{}, host);
    product = ops::mul(c, c);
    EXPECT_EQ(host.passed().bytes.peak, 2 * 6 * 8) << "copies on the host are the guard's, too";
  }

  expect_the_hosts("in place, by a view, beside a kernel's work", [](Device device) {
    const Tensor t = to(zeros({4, 6}, DType::kC64), device);
    fill_(t.select(0, 1), 3);
    ops::mul_(t.slice(1, 1, 4), full({}, 2.0, DType::kF32));
    fill_(t.select(1, 2), 7);
    ops::mul_(t.t().slice(0, 2, 6), t.t().slice(0, 1, 5));
    return ops::real(t);
  });
  expect_the_hosts("into a given tensor", [](Device device) {
    const Tensor t = to(ones({3, 5}, DType::kC64), device);
    const Tensor out = to(zeros({5, 3}, DType::kC64), device);
    ops::into(out.t(), ops::op::mul, t, t);
    return ops::real(out);
  });
  expect_the_hosts("loops on several threads", [](Device device) {
    Generator generator(3);
    const Tensor rows = to(randn({20, 5000}, DType::kF32, generator), device);
    const Tensor sorted = ops::sort(rows, 1).first;
    const Tensor square = ops::real(ops::matmul(to(rows, DType::kC64), to(rows, DType::kC64).t()));
    return ops::cat({ops::amax(sorted, {0}), square.reshape({-1})}, 0);
  });
  expect_the_hosts("lazy clones", [](Device device) {
    const Tensor t = to(ones({4}, DType::kC64), device);
    const Tensor clone = lazy_clone(t);
    ops::add_(t, t);
    const Tensor third = lazy_clone(t);
    ops::mul_(third, t);
    return ops::real(ops::cat({t, clone, third}, 0));
  });
  expect_the_hosts("gradients", [](Device device) {
    const Tensor x = to(arange(4, DType::kF32), device).set_requires_grad(true);
    autograd::backward(ops::sum(ops::real(ops::mul(ops::complex(x, x), ops::complex(x, x)))));
    autograd::backward(ops::abs(ops::mul(ops::complex(x, x), ops::complex(x, x)).select(0, 1)));
    return x.grad();
  });
}

void the_host_walks_what_indices_choose() {
  const auto at = [](std::initializer_list<std::int64_t> places) {
    Tensor index = empty({static_cast<std::int64_t>(places.size())}, DType::kI64);
    std::copy(places.begin(), places.end(), index.data_ptr<std::int64_t>());
    return index;
  };
  for (const bool moved : {false, true}) {
    const auto index = [&](Device device, std::initializer_list<std::int64_t> places) {
      return moved ? to(at(places), device) : at(places);
    };
    expect_the_hosts("read", [&](Device device) {
      return to(arange(24, DType::kF32).view({4, 6}), device)[{index(device, {3, 0, -2})}];
    });
    expect_the_hosts("written through a view", [&](Device device) {
      const Tensor t = to(arange(24, DType::kF32).view({4, 6}), device);
      t.t().index_put_({index(device, {1, 1, 5})}, to(ones({4}, DType::kF32), device), true);
      return t;
    });
    expect_the_hosts("by a mask", [&](Device device) {
      const Tensor t = to(arange(24, DType::kF32).view({4, 6}), device);
      const Tensor mask = ops::gt(t, 9.0);
      return t[{moved ? mask : to(mask, Device{})}];
    });
  }
  expect_the_hosts("of nothing", [&](Device device) {
    return ops::index_select(to(zeros({3, 0}, DType::kF32), device), 0, to(at({2, 1}), device));
  });
  const Tensor t = to(arange(6, DType::kF32), kVulkan);
  const HostFallback reads = counted("indexing by tensors", [&] { (void)t[{at({1, 2})}]; });
  EXPECT_EQ(reads.calls, 1u);
  EXPECT_EQ(reads.copied_bytes, (6u + 2) * 4);
  EXPECT_EQ(testing::values(arange(6, DType::kF32)[{to(at({4}), kVulkan)}]),
            std::vector<double>{4});
}

void what_needs_the_host_is_refused() {
  const Tensor t = to(arange(6, DType::kF32), kVulkan);
  EXPECT_EQ(message_of([&] { static_cast<void>(t.data_ptr<float>()); }),
            "the host does not reach the memory of vulkan:0; copy the tensor to the cpu");
  const Tensor c = to(ones({6}, DType::kC64), kVulkan);
  EXPECT_EQ(message_of([&] { Capture(kVulkan, [&] { ops::mul(t, c); }); }),
            "Capture: the step needs the host for mul, which later runs would not repeat; do it "
            "outside the step");
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

TEST_F(VulkanSeparateMemory, TheHostComputesWhatHasNoKernel) {
  EXPECT_EXIT(run(&the_host_computes_what_has_no_kernel), ::testing::ExitedWithCode(0), "");
}

TEST_F(VulkanSeparateMemory, TheHostWalksWhatIndicesChoose) {
  EXPECT_EXIT(run(&the_host_walks_what_indices_choose), ::testing::ExitedWithCode(0), "");
}

TEST_F(VulkanSeparateMemory, WhatNeedsTheHostIsRefused) {
  EXPECT_EXIT(run(&what_needs_the_host_is_refused), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tenon
