#include "tenon/tensor/storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "support/refusal.h"
#include "tenon/base/error.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/copy_on_write.h"
#include "tenon/tensor/factories.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

// Counts what comes and goes.
class CountingAllocator : public Allocator {
 public:
  DataPtr allocate(std::size_t size_bytes) override {
    ++allocated;
    bytes += size_bytes;
    return get_default_cpu_allocator()->allocate(size_bytes);
  }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    default_copy_data(dest, src, size_bytes);
  }
  int allocated = 0;
  std::size_t bytes = 0;
};

int freed = 0;
void count_and_free(void* memory) {
  ++freed;
  std::free(memory);
}

TEST(StorageTest, TakesMemoryThatExistsAndLetsItGoWithTheLastReference) {
  freed = 0;
  void* memory = std::malloc(64);
  auto storage = make_intrusive<StorageImpl>(StorageImpl::UseByteSize{}, 64,
                                             DataPtr(memory, memory, &count_and_free, Device{}),
                                             nullptr, false);
  EXPECT_EQ(storage->data(), memory);
  EXPECT_EQ(storage->nbytes(), 64u);
  EXPECT_FALSE(storage->resizable());
  EXPECT_EQ(storage->allocator(), nullptr);
  auto second = storage;
  EXPECT_EQ(storage.use_count(), 2u);
  storage.reset();
  EXPECT_EQ(freed, 0);
  second.reset();
  EXPECT_EQ(freed, 1);
}

TEST(StorageTest, TakesFreshMemoryFromItsAllocator) {
  CountingAllocator allocator;
  Storage storage(4096, &allocator);
  std::memset(storage.mutable_data(), 1, 4096);
  EXPECT_EQ(allocator.bytes, 4096u);
  EXPECT_EQ(storage.allocator(), &allocator);
  EXPECT_EQ(storage.device(), Device{});
  EXPECT_TRUE(storage.resizable());
  EXPECT_TRUE(storage.unique());
  const Storage same = storage;
  EXPECT_TRUE(same.is_alias_of(storage));
  EXPECT_EQ(storage.use_count(), 2u);
  EXPECT_FALSE(Storage(4096, &allocator).is_alias_of(storage));
}

TEST(StorageTest, AnEmptiedStorageRefusesItsTensorsUntilItGrows) {
  const Tensor t = ones({4});
  t.storage().resize_(0);
  EXPECT_EQ(t.storage().nbytes(), 0u);
  EXPECT_THAT(testing::refusal([&] { t.data_ptr(); }), HasSubstr("given back by resize(0)"));
  EXPECT_THAT(testing::refusal([&] { fill_(t, 1); }), HasSubstr("given back by resize(0)"));
  t.storage().resize_(0);
  t.storage().resize_(16);
  fill_(t, 2);
  EXPECT_EQ(t.select(0, 3).item<float>(), 2);
}

TEST(StorageTest, SizeCanBeSetAndResetLetsTheBytesGo) {
  freed = 0;
  void* memory = std::malloc(64);
  StorageImpl storage(StorageImpl::UseByteSize{}, 64,
                      DataPtr(memory, memory, &count_and_free, Device{}), nullptr, false);
  storage.set_nbytes(32);
  EXPECT_EQ(storage.nbytes(), 32u);
  EXPECT_THROW(storage.set_nbytes(-1), InvalidArgument);
  storage.reset();
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(storage.nbytes(), 0u);
  EXPECT_EQ(storage.data(), nullptr);
}

TEST(StorageTest, ASharedStorageKnowsItsWholeSize) {
  const Tensor a = full({8}, 5.0), b = lazy_clone(a);
  for (const Tensor& t : {a, b}) {
    t.storage().set_nbytes(8);
    t.storage().set_nbytes(32);
    EXPECT_EQ(t.select(0, 7).item<float>(), 5);
    EXPECT_THROW(t.storage().set_nbytes(33), InvalidArgument);
  }
  a.storage().set_nbytes(8);
  fill_(a.slice(0, 0, 2), 6);
  EXPECT_THROW(a.storage().set_nbytes(32), InvalidArgument) << "it copied what it had";
  EXPECT_EQ(b.select(0, 0).item<float>(), 5);
}

TEST(StorageTest, ReleasesItsBytesWhileWeakReferencesKeepTheObject) {
  freed = 0;
  void* memory = std::malloc(64);
  auto storage = make_intrusive<StorageImpl>(StorageImpl::UseByteSize{}, 64,
                                             DataPtr(memory, memory, &count_and_free, Device{}),
                                             nullptr, false);
  const WeakIntrusivePtr<StorageImpl> weak(storage);
  storage.reset();
  EXPECT_EQ(freed, 1);
  EXPECT_TRUE(weak.expired());
}

TEST(StorageTest, ResizingKeepsTheLeadingBytes) {
  CountingAllocator allocator;
  StorageImpl storage(StorageImpl::UseByteSize{}, 8, &allocator, true);
  std::memcpy(storage.mutable_data(), "tenon!!", 8);
  storage.resize(100000);
  EXPECT_EQ(storage.nbytes(), 100000u);
  EXPECT_STREQ(static_cast<const char*>(storage.data()), "tenon!!");
  storage.resize(3);
  EXPECT_EQ(std::memcmp(storage.data(), "ten", 3), 0);
  StorageImpl fixed(StorageImpl::UseByteSize{}, 0, DataPtr(), nullptr, false);
  EXPECT_THROW(fixed.resize(8), InvalidArgument);
}

TEST(StorageTest, ConstructionIsChecked) {
  EXPECT_THROW(StorageImpl(StorageImpl::UseByteSize{}, 8, nullptr, false), InvalidArgument);
  EXPECT_THROW(StorageImpl(StorageImpl::UseByteSize{}, -8, DataPtr(), nullptr, false),
               InvalidArgument);
}

TEST(LazyStorageTest, BytesComeAtTheFirstAccess) {
  CountingAllocator allocator;
  StorageImpl storage(StorageImpl::Lazy{}, 256, Device{}, &allocator, true);
  EXPECT_FALSE(storage.has_bytes());
  EXPECT_EQ(allocator.allocated, 0);
  EXPECT_EQ(storage.nbytes(), 256u);
  EXPECT_NE(storage.data(), nullptr);
  EXPECT_EQ(storage.data(), storage.mutable_data());
  EXPECT_EQ(allocator.allocated, 1);
  EXPECT_TRUE(storage.has_bytes());
}

TEST(LazyStorageTest, ManyThreadsMayMakeTheFirstAccess) {
  for (int round = 0; round < 50; ++round) {
    CountingAllocator allocator;
    StorageImpl storage(StorageImpl::Lazy{}, 256, Device{}, &allocator, false);
    std::vector<std::thread> threads;
    std::vector<const void*> seen(4);
    for (std::size_t i = 0; i < seen.size(); ++i)
      threads.emplace_back([&, i] { seen[i] = storage.data(); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(allocator.allocated, 1);
    for (const void* data : seen) EXPECT_EQ(data, seen[0]);
  }
}

TEST(LazyStorageTest, WithoutAllocatorTheOneThatIsCurrentThenServes) {
  const Tensor lazy = empty_lazy({64});
  CountingAllocator allocator;
  {
    const AllocatorGuard guard(Device{}, allocator);
    EXPECT_NE(lazy.const_data_ptr(), nullptr);
  }
  EXPECT_EQ(allocator.bytes, 256u);
}

TEST(CopyOnWriteTest, ClonesShareUntilOneIsWritten) {
  CountingAllocator allocator;
  Storage a(64, &allocator);
  std::memset(a.mutable_data(), 1, 64);
  const void* original = a.data();
  Storage b(copy_on_write_clone(*a.impl()));
  Storage c(copy_on_write_clone(*b.impl()));
  EXPECT_EQ(allocator.allocated, 1);
  EXPECT_EQ(b.data(), original);
  EXPECT_FALSE(a.is_alias_of(b));
  std::memset(b.mutable_data(), 2, 64);
  EXPECT_EQ(allocator.allocated, 2);
  EXPECT_NE(b.data(), original);
  EXPECT_EQ(static_cast<const char*>(a.data())[5], 1);
  EXPECT_EQ(static_cast<const char*>(c.data())[5], 1);
  EXPECT_NE(a.mutable_data(), original);
  EXPECT_EQ(c.mutable_data(), original);  // the last one left takes the bytes over
  EXPECT_EQ(allocator.allocated, 3);
  EXPECT_FALSE(c.impl()->is_copy_on_write());
}

TEST(CopyOnWriteTest, OriginalBytesOutliveTheOriginal) {
  freed = 0;
  void* memory = std::malloc(64);
  Storage a(64, DataPtr(memory, memory, &count_and_free, Device{}));
  Storage b(copy_on_write_clone(*a.impl()));
  a = Storage();
  EXPECT_EQ(freed, 0);
  EXPECT_EQ(b.mutable_data(), memory);
  b = Storage();
  EXPECT_EQ(freed, 1);
}

TEST(CopyOnWriteTest, FailedCopyLeavesBothWhole) {
  CountingAllocator allocator;
  Storage a(64, &allocator);
  std::memset(a.mutable_data(), 3, 64);
  Storage b(copy_on_write_clone(*a.impl()));
  class Failing : public CountingAllocator {
    DataPtr allocate(std::size_t) override { throw OutOfMemory({}); }
  } failing;
  Storage c(make_intrusive<StorageImpl>(StorageImpl::UseByteSize{}, 64,
                                        get_default_cpu_allocator()->allocate(64), &failing, true));
  std::memset(c.mutable_data(), 4, 64);
  Storage d(copy_on_write_clone(*c.impl()));
  EXPECT_THROW(d.mutable_data(), OutOfMemory);
  EXPECT_TRUE(d.impl()->is_copy_on_write());
  EXPECT_EQ(static_cast<const char*>(d.data())[0], 4);
  EXPECT_EQ(static_cast<const char*>(c.data())[0], 4);
}

TEST(CopyOnWriteTest, WhatOutlivesItsAllocatorGrowsAndCopiesElsewhere) {
  Tensor kept, copy;
  {
    CountingAllocator ends;
    const AllocatorGuard guard(Device{}, ends);
    kept = zeros({16});
    copy = lazy_clone(kept);
    EXPECT_EQ(kept.storage().allocator(), nullptr);
  }
  fill_(copy, 1);
  kept.storage().impl()->resize(1024);
  EXPECT_EQ(kept.storage().nbytes(), 1024u);
  EXPECT_EQ(copy.select(0, 3).item<float>(), 1);
  EXPECT_EQ(kept.select(0, 3).item<float>(), 0);
}

TEST(CopyOnWriteTest, TensorsCloneLazily) {
  const Tensor a = full({3, 4}, 1);
  const Tensor b = lazy_clone(a.transpose(0, 1));
  EXPECT_EQ(b.sizes(), (IntList{4, 3}));
  EXPECT_EQ(b.const_data_ptr(), a.const_data_ptr());
  fill_(b, 2);
  EXPECT_EQ(a.select(0, 1).select(0, 1).item<float>(), 1);
  EXPECT_EQ(b.select(0, 1).select(0, 1).item<float>(), 2);
  EXPECT_EQ(a.version(), 0u);
  EXPECT_EQ(b.version(), 1u);
}

TEST(SymIntTest, ComputesWithHintsAndEvaluatesWithValues) {
  const SymInt batch = SymInt::symbol("batch", 8);
  const SymInt bytes = SymInt(4) * batch * (SymInt(3) + SymInt::symbol("width", 5));
  EXPECT_TRUE(bytes.is_symbolic());
  EXPECT_EQ(bytes.hint(), 4 * 8 * 8);
  EXPECT_EQ(bytes.evaluate({{"batch", 2}, {"width", 10}}), 4 * 2 * 13);
  EXPECT_EQ(to_string(bytes), "batch * width * 4 + batch * 12");
  EXPECT_THROW(static_cast<void>(bytes.evaluate({{"batch", 2}})), InvalidArgument);
  EXPECT_FALSE((SymInt(3) * SymInt(4)).is_symbolic());
  EXPECT_EQ(to_string(SymInt(-7)), "-7");
  const SymInt less = batch - SymInt(9);  // -1 by the hint: division rounds down
  EXPECT_EQ((less / SymInt(2)).hint(), -1);
  EXPECT_EQ((less % SymInt(2)).hint(), 1);
  EXPECT_THROW(SymInt(INT64_MAX / 4) * SymInt(4), InvalidArgument);
  EXPECT_THROW(SymInt::symbol("", 1), InvalidArgument);
}

TEST(SymIntTest, ANameHasOneHint) {
  const SymInt batch = SymInt::symbol("batch", 37), other = SymInt::symbol("batch", 5);
  EXPECT_THROW(batch + other, InvalidArgument);
  EXPECT_THROW(batch * 2 - other, InvalidArgument);
  EXPECT_EQ((batch + SymInt::symbol("batch", 37)).hint(), 74);
}

TEST(SymIntTest, RefusesWhatDoesNotFit) {
  const std::int64_t largest = INT64_MAX >> 1;
  EXPECT_EQ(SymInt(largest).hint(), largest);
  EXPECT_EQ(SymInt(-largest - 1).hint(), -largest - 1);
  EXPECT_THAT(testing::refusal([] { SymInt(INT64_MAX); }),
              HasSubstr("9223372036854775807 does not fit the 63 bits of a plain size"));
  EXPECT_THAT(testing::refusal([] { SymInt(INT64_MIN); }), HasSubstr("-9223372036854775808"));
  EXPECT_THAT(testing::refusal([&] { SymInt(largest) + 1; }),
              HasSubstr("4611686018427387903 + 1 does not fit 63 bits"));
  const SymInt batch = SymInt::symbol("batch", 8);
  EXPECT_THAT(testing::refusal([&] { batch* largest; }), HasSubstr("8 * 4611686018427387903"));
  EXPECT_THAT(testing::refusal([&] { (batch * 1000).evaluate({{"batch", largest}}); }),
              HasSubstr("1000 * 4611686018427387903"));
}

TEST(MetaTest, HasASizeAndNoBytes) {
  const Tensor t = empty({1 << 20, 1 << 20}, DType::kF64, Device{DeviceType::kMeta, 0});
  EXPECT_EQ(t.storage().nbytes(), std::size_t{1} << 43);
  EXPECT_EQ(t.const_data_ptr(), nullptr);
  const std::vector<SymInt> sizes = {SymInt::symbol("batch", 4), 128};
  const Tensor symbolic = empty_symbolic(sizes);
  EXPECT_EQ(symbolic.sizes(), (IntList{4, 128}));
  EXPECT_EQ(symbolic.storage().nbytes(), 4u * 128 * 4);
  EXPECT_EQ(symbolic.storage().sym_nbytes().evaluate({{"batch", 10}}), 10 * 128 * 4);
}

}  // namespace
}  // namespace tenon
