// Every driver call fails once under the functions that PyTorch calls: it hears of it, the process
// goes on, and what was taken is given back.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <stdexcept>
#include <vector>

#include "torch/tenon_torch_library.h"

namespace tenon {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::PoolId;
using testing::TenonTorchLibrary;

class TenonTorchFaults : public TenonTorchLibrary {
 protected:
  // Calls a hook as PyTorch does: an exception is the program's to handle.
  template <typename Call>
  void attempt(Call&& call) {
    try {
      call();
    } catch (const std::exception& error) {
      ++failures_;
      EXPECT_THAT(error.what(),
                  AnyOf(HasSubstr("cu"), HasSubstr("out of memory"), HasSubstr("not open"),
                        HasSubstr("not in use")));
    }
  }

  void use_everything(cu::Stream side) {
    std::vector<void*> blocks;
    const auto take = [&](ssize_t size, cu::Stream stream) {
      attempt([&] {
        blocks.push_back(allocate(size, stream));
        record_stream(blocks.back(), stream == side ? nullptr : side);
      });
    };
    for (int i = 0; i < 6; ++i) take((ssize_t{1} << 20) * (1 + 3 * i), i % 2 == 0 ? side : nullptr);
    for (std::size_t i = 0; i < blocks.size(); i += 2) free(std::exchange(blocks[i], nullptr));
    take(60 << 20, side);
    const PoolId id{0, ++pools_};
    attempt([&] {
      find<void(int, PoolId, std::function<bool(cu::Stream)>)>("tenon_begin_allocate_to_pool")(
          0, id, [](cu::Stream) { return true; });
    });
    take(5 << 20, side);
    attempt([&] { find<void(int, PoolId)>("tenon_end_allocate_to_pool")(0, id); });
    attempt([&] { find<void()>("tenon_reset")(); });
    for (void* block : blocks) free(block);
    attempt([&] { find<void(int, PoolId)>("tenon_release_pool")(0, id); });
  }

  void fail_any(std::uint64_t nth, int result) {
    stand_in<void(std::uint64_t, int)>("stand_in_fail_any")(nth, result);
  }

  unsigned long long pools_ = 1000;
  int failures_ = 0;
};

TEST_F(TenonTorchFaults, OfEveryCallAreHeardAndSurvived) {
  const cu::Stream side = make_stream();
  use_everything(side);
  const auto calls = stand_in<std::uint64_t()>("stand_in_all_calls");
  const std::uint64_t before = calls();
  use_everything(side);
  const std::uint64_t each = calls() - before;
  ASSERT_GT(each, 30u);
  EXPECT_EQ(failures_, 0);
  ::testing::internal::CaptureStderr();  // frees that fail say so there
  for (const int error : {cu::kErrorOutOfMemory, cu::kErrorUnknown})
    for (std::uint64_t nth = 1; nth <= each; nth += each / 120 + 1) {
      SCOPED_TRACE(fmt::format("call {} of {} fails with {}", nth, each, error));
      fail_any(nth, error);
      use_everything(side);
      fail_any(0, 0);
      find<void()>("tenon_reset")();
      EXPECT_EQ(stand_in<std::uint64_t(int)>("stand_in_used")(0), 0u);
    }
  ::testing::internal::GetCapturedStderr();
  EXPECT_GT(failures_, 20);
}

}  // namespace
}  // namespace tenon
