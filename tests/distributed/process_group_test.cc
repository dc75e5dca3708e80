// Collectives on tensors, as every rank sees them.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/device/devices.h"
#include "tenon/distributed/lone_group.h"
#include "tenon/lab/step_meter.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/registry.h"
#include "tenon/ops/binary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"
#include "world.h"

namespace tenon::distributed {
namespace {

using testing::world;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// A tensor of rank `rank`; any rank can make any other's.
Tensor of_rank(int rank, std::int64_t elements, DType dtype = DType::kF32) {
  Generator generator(static_cast<std::uint64_t>(100 + rank));
  const Tensor values = randn({elements}, DType::kF32, generator);
  return to(is_floating(dtype) || is_complex(dtype) ? values : ops::mul(values, 20.0), dtype);
}

// Pairs, then pairs of pairs, recursively.
Tensor tree(std::int64_t elements, DType dtype, int first, int count) {
  if (count == 1) return of_rank(first, elements, dtype);
  int left = 1;
  while (left * 2 < count) left *= 2;
  return ops::add(tree(elements, dtype, first, left),
                  tree(elements, dtype, first + left, count - left));
}

TEST(ProcessGroupTest, AllReduceAddsByTheTreeInEveryDType) {
  for (const DType dtype : {DType::kU8, DType::kI8, DType::kI16, DType::kI32, DType::kI64,
                            DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kC64,
                            DType::kC128})
    for (const std::int64_t elements : {1, 7, 64, 1000}) {
      const Tensor mine = of_rank(world->rank(), elements, dtype);
      world->all_reduce(mine);
      EXPECT_TRUE(same_bits(mine, tree(elements, dtype, 0, world->size())))
          << dtype_name(dtype) << ", " << elements;
    }
}

TEST(ProcessGroupTest, ReduceScatterGivesEachRankItsPiece) {
  const std::int64_t piece = 33;
  const std::int64_t all = piece * world->size();
  const Tensor wanted = tree(all, DType::kF32, 0, world->size());
  const Tensor in = of_rank(world->rank(), all);
  const Tensor out = empty({piece});
  world->reduce_scatter(out, in);
  EXPECT_TRUE(same_bits(out, clone(wanted.narrow(0, piece * world->rank(), piece))));
  const Tensor in_place = in.narrow(0, piece * world->rank(), piece);
  world->reduce_scatter(in_place, in);
  EXPECT_TRUE(same_bits(clone(in_place), out));
}

TEST(ProcessGroupTest, AllGatherAndAllToAllMoveEveryDType) {
  const int ranks = world->size();
  for (const DType dtype : {DType::kBool, DType::kBF16, DType::kI64, DType::kU16}) {
    const Tensor mine = of_rank(world->rank(), 5, dtype);
    const Tensor all = empty({ranks, 5}, dtype);
    world->all_gather(all, mine);
    for (int i = 0; i < ranks; ++i)
      EXPECT_TRUE(same_bits(clone(all[i]), of_rank(i, 5, dtype))) << dtype_name(dtype);
    copy_(all[world->rank()], mine);
    world->all_gather(all, all[world->rank()]);
    EXPECT_TRUE(same_bits(clone(all[ranks - 1]), of_rank(ranks - 1, 5, dtype)));
  }
  const Tensor in = empty({ranks, 2}, DType::kI64), out = empty({ranks, 2}, DType::kI64);
  for (int i = 0; i < ranks; ++i) fill_(in[i], 10 * world->rank() + i);
  world->all_to_all(out, in);
  for (int i = 0; i < ranks; ++i)
    EXPECT_EQ(out[i][1].item<std::int64_t>(), 10 * i + world->rank());
}

TEST(ProcessGroupTest, BroadcastSendAndReceive) {
  const int last = world->size() - 1;
  const Tensor t = full({3}, world->rank());
  world->broadcast(t, last);
  EXPECT_EQ(t[2].item<double>(), last);
  // Round a ring, sent and received at once.
  const Tensor mine = full({70000}, world->rank()), theirs = empty({70000});
  const int next = (world->rank() + 1) % world->size();
  const int previous = (world->rank() + last) % world->size();
  Work receiving = world->start_receive(theirs, previous);
  Work sending = world->start_send(mine, next);
  sending.wait();
  receiving.wait();
  EXPECT_EQ(theirs[69999].item<double>(), previous);
}

TEST(ProcessGroupTest, WorkMovesOnWhileTheCallerComputes) {
  const Tensor a = of_rank(world->rank(), 1000), b = of_rank(world->rank() + 50, 1000);
  Work first = world->start_all_reduce(a);
  Work second = world->start_all_reduce(b);
  for (int i = 0; i < 100; ++i) {
    first.progress();
    second.progress();
  }
  first.wait();
  second.wait();
  second.wait();
  EXPECT_FALSE(first.is_pending());
  EXPECT_TRUE(same_bits(a, tree(1000, DType::kF32, 0, world->size())));
}

TEST(ProcessGroupTest, SplitMakesGroupsOfTheirOwn) {
  const int rank = world->rank();
  const auto half = world->split(rank % 2, -rank);  // in reversed order
  const int members = (world->size() + 1 - rank % 2) / 2;
  EXPECT_EQ(half->size(), members);
  EXPECT_EQ(half->rank(), members - 1 - rank / 2);
  const Tensor t = full({1}, rank);
  half->all_reduce(t);
  int wanted = 0;
  for (int i = rank % 2; i < world->size(); i += 2) wanted += i;
  EXPECT_EQ(t.item<double>(), wanted);
}

TEST(ProcessGroupTest, TextsOfAnyLengthAreGathered) {
  const std::vector<std::string> texts =
      world->gather_texts(std::string(static_cast<std::size_t>(world->rank()), 'x'));
  for (int i = 0; i < world->size(); ++i)
    EXPECT_EQ(texts[static_cast<std::size_t>(i)].size(), static_cast<std::size_t>(i));
}

TEST(ProcessGroupTest, BytesSentAreTheKnownOptimum) {
  const auto others = static_cast<std::uint64_t>(world->size()) - 1;
  const Tensor t = zeros({12 << 16});
  const std::uint64_t before = world->bytes_sent();
  world->all_reduce(t);
  EXPECT_EQ(world->bytes_sent() - before,
            2 * others * t.nbytes() / static_cast<std::uint64_t>(world->size()));
}

TEST(ProcessGroupTest, WrongTensorsAreRefusedBeforeAnythingIsSent) {
  const std::uint64_t before = world->bytes_sent();
  EXPECT_THROW(world->all_reduce(zeros({4, 4}).t()), InvalidArgument);
  EXPECT_THROW(world->all_gather(zeros({3}), zeros({2})), InvalidArgument);
  EXPECT_THROW(world->reduce_scatter(zeros({1}, DType::kF64), zeros({world->size()})),
               InvalidArgument);
  EXPECT_THROW(world->send(zeros({1}), world->size()), InvalidArgument);
  EXPECT_THROW(world->broadcast(zeros({1}), -1), InvalidArgument);
  EXPECT_EQ(world->bytes_sent(), before);
}

// What a rank allocates in a collective, under the tag, is what the forecast's group says.
TEST(ProcessGroupTest, BuffersAreCountedAndForeseen) {
  const auto policy = make_policy("system", *own_backend({}), {});
  const auto events_of = [&](ProcessGroup& group) {
    StepMeter meter(*policy);
    meter.record(true);
    {
      const AllocatorGuard guard({}, meter);
      const Tensor t = ones({1001});
      group.all_reduce(t);
    }
    std::vector<std::pair<std::uint64_t, std::string>> sizes;
    for (const StepEvent& event : meter.take_events())
      sizes.push_back({event.size_bytes, event.phase == nullptr ? "" : event.phase});
    return sizes;
  };
  LoneGroup lone(world->rank(), world->size());
  const auto real = events_of(*world);
  EXPECT_EQ(real, events_of(lone));
  EXPECT_EQ(real[1].second, "communication");
  EXPECT_EQ(lone.bytes_sent() > 0, world->size() > 1);
}

}  // namespace
}  // namespace tenon::distributed
