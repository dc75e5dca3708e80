// The changes that explain names for programs of repeated layers.
#include "tenon/lab/verdict/changes.h"

#include <gtest/gtest.h>

#include "tenon/base/byte_size.h"
#include "tenon/lab/explain/explain.h"
#include "tenon/trace/snapshot.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using namespace testing::pickled;

constexpr const char* kModule = "x/site-packages/torch/nn/modules/module.py";

std::string allocation(std::uint64_t address, std::uint64_t size, std::uint64_t now,
                    const std::string& stack) {
  return entry_with("alloc", address, size, now, {{"frames", stack}});
}

std::string line_of_model(std::uint64_t line, const char* function, const char* op) {
  return list({frame("torch::unwind::unwind()", "??", 0),
               frame(std::string("at::_ops::") + op + "::call(at::Tensor const&)", "??", 0),
               frame(function, "model.py", line),
               frame("_call_impl", kModule, 7),
               frame("main", "train.py", 7)});
}

// The forward pass of six layers that keep their results. Attention that is written out takes
// 1 + 16 + 16 MiB; a line far from it takes 16 MiB.
std::vector<std::string> forward_of_six_layers() {
  const std::string moved = list({frame("_apply", kModule, 7), frame("main", "train.py", 7)});
  std::vector<std::string> entries = {allocation(1 << 20, 8 * kMiB, 1, moved)};
  std::uint64_t now = 1;
  for (std::uint64_t layer = 0; layer < 6; ++layer) {
    const std::uint64_t at = (layer + 1) << 32;
    ++now;
    entries.push_back(allocation(at, kMiB, now, line_of_model(10, "forward", "linear")));
    entries.push_back(allocation(at + (1 << 28), 16 * kMiB, now,
                              line_of_model(12, "forward", "matmul")));
    entries.push_back(allocation(at + (2 << 28), 16 * kMiB, now,
                              line_of_model(13, "forward", "softmax")));
    entries.push_back(allocation(at + (3 << 28), 16 * kMiB, now,
                              line_of_model(90, "forward", "mul")));
  }
  return entries;
}

Explanation explained(const std::vector<std::string>& entries) {
  return explain(parse_snapshot(snapshot({}, {entries}), "x.pickle"), "x.pickle");
}

const Change* change_named(const Verdict& verdict, std::string_view what) {
  for (const Change& change : verdict.changes)
    if (change.what == what) return &change;
  return nullptr;
}

TEST(Changes, NameGradientsThatNobodyNeeds) {
  std::vector<std::string> entries = forward_of_six_layers();
  const Explanation all = explained(entries);
  const Change* change =
      change_named(all.devices.at(0).verdict, "run the model without gradients");
  ASSERT_NE(change, nullptr);
  EXPECT_EQ(change->peak_bytes, (8 + 1 + 3 * 16) * kMiB) << "the weights, and one layer";
  entries.push_back(
      allocation(7ull << 32, 8 * kMiB, 99,
              list({frame("torch::autograd::generated::MmBackward0::apply(int)", "??", 0),
                    frame("torch::autograd::Engine::thread_main(int)", "??", 0)})));
  const Explanation trained = explained(entries);
  EXPECT_EQ(change_named(trained.devices.at(0).verdict, "run the model without gradients"),
            nullptr);
}

// Training's first forward pass may have failed.
TEST(Changes, NameNoGradientsWhereTheRecordingEndsWithAFailure) {
  std::vector<std::string> entries = forward_of_six_layers();
  entries.push_back(dict({{"action", text("oom")},
                          {"device_free", number(0)},
                          {"size", number(kGiB)},
                          {"stream", number(0)},
                          {"time_us", number(99)},
                          {"frames", line_of_model(90, "forward", "mul")}}));
  const Explanation all = explained(entries);
  const Verdict& verdict = all.devices.at(0).verdict;
  EXPECT_EQ(change_named(verdict, "run the model without gradients"), nullptr);
  EXPECT_NE(change_named(verdict, "checkpoint the repeated layers"), nullptr);
}

TEST(Changes, NameAttentionThatIsWrittenOut) {
  const Explanation all = explained(forward_of_six_layers());
  const Change* change =
      change_named(all.devices.at(0).verdict, "let one kernel compute the attention");
  ASSERT_NE(change, nullptr);
  EXPECT_EQ(change->saves_bytes, 5 * 2 * 16 * kMiB)
      << "the softmax and the product beside it, in all layers but one; not line 90";
}

}  // namespace
}  // namespace tenon
