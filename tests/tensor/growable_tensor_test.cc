#include "tenon/tensor/growable_tensor.h"

#include <gtest/gtest.h>

#include "support/cuda_stand_in.h"
#include "support/refusal.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon {
namespace {

TEST(GrowableTensorTest, AppendsWithoutACopy) {
  HostBackend host;
  const auto pool = PagePool::make(host);
  GrowableTensor cache(pool, 100'000, {16}, DType::kF32);
  const void* const address = cache.buffer().data();
  cache.append(full({2, 16}, 1.0));
  const Tensor early = cache.tensor();
  for (int i = 0; i < 2000; ++i) cache.append(full({8, 16}, i, DType::kI64));
  EXPECT_EQ(cache.length(), 16'002);
  const Tensor all = cache.tensor();
  EXPECT_EQ(all.const_data_ptr(), address);
  EXPECT_EQ(early.const_data_ptr(), address) << "still valid";
  EXPECT_EQ(early.sizes(), (IntList{2, 16}));
  for (const int i : {0, 1, 999, 1999})
    EXPECT_EQ(all.select(0, 2 + 8 * i).select(0, 15).item<float>(), static_cast<float>(i));
  EXPECT_EQ(early.select(0, 1).select(0, 0).item<float>(), 1.0f);
}

TEST(GrowableTensorTest, ManyShareAPoolAndGiveTheirPagesOn) {
  HostBackend host;
  const auto pool = PagePool::make(host);
  const std::int64_t rows_of_page = static_cast<std::int64_t>(pool->page_bytes() / 64);
  GrowableTensor first(pool, 10 * rows_of_page, {16}, DType::kF32);
  GrowableTensor second(pool, 10 * rows_of_page, {16}, DType::kF32);
  static_cast<void>(first.extend(6 * rows_of_page));
  first.truncate(rows_of_page);
  static_cast<void>(second.extend(5 * rows_of_page));
  EXPECT_EQ(pool->stats().pages_created, 6u);
  second.truncate(0);
  EXPECT_EQ(second.tensor().numel(), 0);
}

TEST(GrowableTensorTest, TensorsKeepTheMemory) {
  HostBackend host;
  const auto pool = PagePool::make(host);
  Tensor kept;
  {
    GrowableTensor cache(pool, 1000, {4}, DType::kF64);
    cache.append(full({3, 4}, 7.0, DType::kF64));
    kept = cache.rows(1, 3);
  }
  EXPECT_EQ(kept.select(0, 1).select(0, 3).item<double>(), 7.0);
  EXPECT_EQ(pool->stats().pages_in_use, 1u);
  kept = Tensor();
  EXPECT_EQ(pool->stats().pages_in_use, 0u);
}

TEST(GrowableTensorTest, TensorsOutliveATruncation) {
  HostBackend host;
  const auto pool = PagePool::make(host);
  GrowableTensor cache(pool, 1 << 20, {16}, DType::kF32);
  cache.append(ones({1 << 18, 16}));
  {
    const Tensor early = cache.tensor();
    cache.truncate(10);
    cache.append(full({1, 16}, 2.0));
    EXPECT_EQ(early.select(0, (1 << 18) - 1).select(0, 15).item<float>(), 1.0f);
    EXPECT_EQ(early.select(0, 10).select(0, 0).item<float>(), 2.0f) << "one memory";
  }
  cache.truncate(10);
  cache.append(ones({1, 16}));
  EXPECT_EQ(pool->stats().pages_in_use, 1u);
}

TEST(GrowableTensorTest, RefusalsLeaveItAsItWas) {
  HostBackend host;
  const auto pool = PagePool::make(host);
  GrowableTensor cache(pool, 10, {4}, DType::kF32);
  cache.append(ones({9, 4}));
  EXPECT_THROW(cache.append(ones({2, 4})), InvalidArgument) << "beyond the most";
  EXPECT_THROW(cache.append(ones({1, 5})), InvalidArgument);
  EXPECT_THROW(cache.append(ones({4})), InvalidArgument);
  EXPECT_THROW(cache.truncate(10), InvalidArgument);
  EXPECT_EQ(cache.length(), 9);
  EXPECT_THROW(GrowableTensor(pool, 0, {4}, DType::kF32), InvalidArgument);
}

TEST(GrowableTensorTest, ALazyCloneLeavesTheRowsWhereTheyAre) {
  HostBackend host;
  GrowableTensor cache(PagePool::make(host), 1 << 20, {4}, DType::kF32);
  cache.append(ones({100, 4}));
  const Tensor copy = lazy_clone(cache.tensor());
  cache.append(full({1 << 17, 4}, 2.0));
  EXPECT_EQ(cache.length(), 100 + (1 << 17));
  const Tensor all = cache.tensor();
  EXPECT_EQ(all.const_data_ptr(), cache.buffer().data());
  fill_(all, 7);
  fill_(copy.select(0, 1), 3);
  EXPECT_EQ(all.data_ptr(), cache.buffer().data());
  EXPECT_EQ(copy.select(0, 0).select(0, 0).item<float>(), 1);
  EXPECT_EQ(copy.select(0, 1).select(0, 0).item<float>(), 3);
  EXPECT_EQ(all.select(0, 1).select(0, 0).item<float>(), 7);
  GrowableTensor none(PagePool::make(host), 10, {4}, DType::kF32);
  EXPECT_EQ(lazy_clone(none.tensor()).numel(), 0);
}

TEST(GrowableTensorTest, AFailedAppendLeavesTheLength) {
  const Tensor room = zeros({4, 3});
  GrowableTensor cache(room);
  cache.append(ones({1, 3}));
  room.storage().resize_(0);
  EXPECT_THROW(cache.append(ones({2, 3})), InvalidArgument);
  EXPECT_THROW(cache.extend(1), InvalidArgument);
  EXPECT_EQ(cache.length(), 1);
  room.storage().resize_(48);
  cache.append(ones({3, 3}));
  EXPECT_EQ(cache.length(), 4);
}

TEST(GrowableTensorTest, ARoomIsAPlainTensorWithElements) {
  const auto message = [](const Tensor& room) {
    return testing::refusal([&] { GrowableTensor cache(room); });
  };
  EXPECT_EQ(message(Tensor()).substr(0, 36), "growable tensor: an undefined tensor");
  EXPECT_EQ(message(empty({0, 3})), "growable tensor: 0 rows of shape [3] have no elements");
  EXPECT_EQ(message(empty({4, 3}).t()).substr(0, 29), "growable tensor: its room mus");
  HostBackend host;
  const auto pool = PagePool::make(host);
  EXPECT_THROW(GrowableTensor(pool, (std::int64_t{1} << 62) + 1, {1}, DType::kF32),
               InvalidArgument);
}

TEST(GrowableTensorTest, WithoutAPoolItHasNoPages) {
  GrowableTensor rows(empty({4, 3}));
  EXPECT_THROW(rows.commit(2), InvalidArgument);
  EXPECT_THROW(rows.record_stream({}), InvalidArgument);
  EXPECT_THROW(static_cast<void>(rows.buffer()), InvalidArgument);
  EXPECT_THROW(GrowableTensor(nullptr, 4, {3}, DType::kF32), InvalidArgument);
}

TEST(GrowableTensorTest, ItsTensorsAreViewsOfOneStorage) {
  HostBackend host;
  GrowableTensor cache(PagePool::make(host), 100'000, {3}, DType::kF32);
  cache.append(to(arange(9).view({3, 3}), DType::kF32));
  const Tensor all = cache.tensor();
  EXPECT_TRUE(cache.rows(1, 2).is_alias_of(all));
  copy_(cache.tensor(), all.t());  // operands that overlap
  for (int row = 0; row < 3; ++row)
    for (int column = 0; column < 3; ++column)
      EXPECT_EQ(all.select(0, row).select(0, column).item<float>(),
                static_cast<float>(3 * column + row));
  EXPECT_THROW(cache.tensor().as_strided({10'000, 3}, {3, 1}), InvalidArgument)
      << "no further than the memory goes";
}

TEST(GrowableTensorTest, AppendingChangesNoVersionAndTruncatingDoes) {
  HostBackend host;
  GrowableTensor cache(PagePool::make(host), 100, {3}, DType::kF32);
  cache.append(ones({3, 3}));
  const Tensor early = cache.tensor();
  const auto version = early.version();
  cache.append(ones({1, 3}));
  static_cast<void>(cache.extend(2));
  EXPECT_EQ(early.version(), version);
  cache.truncate(2);
  EXPECT_GT(early.version(), version);
}

TEST(GrowableTensorTest, GivesPagesBackInTheOrderOfTheCurrentStream) {
  SimOptions options;
  options.capacity_bytes = 256 << 20;
  options.lag_ns = 1'000'000'000;
  options.check_order = true;
  SimBackend sim(options);
  const Stream stream = sim.create_stream();
  const auto pool = PagePool::make(sim);
  GrowableTensor cache(pool, 64, {1 << 19}, DType::kF32);
  {
    const StreamGuard guard(stream);
    const Tensor rows = cache.extend(4);
    sim.queue_work(stream);
    sim.access(stream, rows.const_data_ptr(), 1 << 21, 1);
  }
  cache.truncate(0);
  EXPECT_EQ(pool->stats().pages_idle, 0u) << "the work on them is not over";
  EXPECT_TRUE(sim.order_violations().empty());
}

TEST(GrowableTensorTest, GrowsOnAGpu) {
  const testing::StandIn machine("lazy=1,seed=4");
  const auto backend = machine.backend();
  const auto allocator = make_policy("caching", *backend);
  const AllocatorGuard guard(backend->device(), *allocator);
  const auto pool = PagePool::make(*backend);
  GrowableTensor cache(pool, 1 << 20, {64}, DType::kF32);
  const void* const address = cache.buffer().data();
  for (int i = 0; i < 4; ++i) {
    const Tensor rows = full({4096, 64}, i);
    cache.append(rows);
    backend->synchronize();  // the host's rows go
  }
  EXPECT_EQ(cache.tensor().const_data_ptr(), address);
  const Tensor back = to(cache.rows(3 * 4096, 3 * 4096 + 1), Device{});
  EXPECT_EQ(back.select(0, 0).select(0, 63).item<float>(), 3.0f);
}

}  // namespace
}  // namespace tenon
