#include "tenon/nn/key_value_cache.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tenon/autograd/grad_mode.h"
#include "tenon/base/error.h"
#include "tenon/nn/models.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/inference_mode.h"

namespace tenon::nn {
namespace {

GptOptions small() {
  GptOptions options;
  options.vocabulary = 11;
  options.length = 24;
  options.layers = 3;
  options.width = 32;
  options.heads = 4;
  return options;
}

void expect_close(const Tensor& a, const Tensor& b, const char* what, std::int64_t place) {
  const Tensor x = contiguous(a), y = contiguous(b);
  ASSERT_EQ(x.numel(), y.numel());
  for (std::int64_t i = 0; i < x.numel(); ++i)
    ASSERT_NEAR(x.const_data_ptr<float>()[i], y.const_data_ptr<float>()[i], 1e-4)
        << what << " " << place << ", class " << i;
}

TEST(KeyValueCacheTest, StepsSayWhatTheWholeSequenceSays) {
  Generator generator(5);
  CharGpt model(small(), generator);
  const InferenceMode inference;
  const Tensor ids = empty({1, 24}, DType::kI64);
  for (std::int64_t i = 0; i < 24; ++i) ids.data_ptr<std::int64_t>()[i] = (i * i + 3) % 11;
  KeyValueCache cache = model.make_cache();
  const void* const address = cache.layer(0).buffer().data();
  // A prompt at once, then place by place.
  const Tensor prompt = model.step(ids.narrow(1, 0, 7), cache);
  const Tensor whole = model.forward(ids);
  for (std::int64_t i = 0; i < 7; ++i)
    expect_close(prompt.select(1, i), whole.select(1, i), "prompt", i);
  for (std::int64_t i = 7; i < 24; ++i) {
    const Tensor next = model.step(ids.narrow(1, i, 1), cache);
    expect_close(next.select(1, 0), whole.select(1, i), "place", i);
  }
  EXPECT_EQ(cache.length(), 24);
  EXPECT_EQ(cache.layer(0).buffer().data(), address);
  EXPECT_THROW(model.step(ids.narrow(1, 0, 1), cache), InvalidArgument) << "the view is full";
  // What is forgotten is computed anew.
  cache.truncate(0);
  expect_close(model.step(ids.narrow(1, 0, 1), cache).select(1, 0), whole.select(1, 0), "again", 0);
}

TEST(KeyValueCacheTest, WrongStepsAreRefused) {
  Generator generator(6);
  CharGpt model(small(), generator);
  const InferenceMode inference;
  KeyValueCache cache = model.make_cache();
  EXPECT_THROW(model.step(zeros({2, 3}, DType::kI64), cache), InvalidArgument) << "two sequences";
  static_cast<void>(model.step(zeros({1, 2}, DType::kI64), cache));
  EXPECT_THROW(model.step(zeros({1, 2}, DType::kI64), cache), InvalidArgument);
  KeyValueCache shallow(2, 24, 32);
  EXPECT_THROW(model.step(zeros({1, 1}, DType::kI64), shallow), InvalidArgument);
  EXPECT_THROW(KeyValueCache(0, 1, 1), InvalidArgument);
}

}  // namespace
}  // namespace tenon::nn
