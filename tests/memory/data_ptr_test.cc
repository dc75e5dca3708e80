#include "tenon/memory/data_ptr.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>
#include <vector>

namespace tenon {
namespace {

// What the deleters below were given, in order.
std::vector<void*>& deleted() {
  static std::vector<void*> calls;
  return calls;
}
void record_delete(void* context) { deleted().push_back(context); }
void record_delete_twice(void* context) {
  deleted().push_back(context);
  deleted().push_back(context);
}

class DataPtrTest : public ::testing::Test {
 protected:
  void SetUp() override { deleted().clear(); }

  int data_ = 0;
  int context_ = 0;
  const Device cuda1_{DeviceType::kCuda, 1};
};

static_assert(!std::is_copy_constructible_v<DataPtr>);
static_assert(!std::is_copy_assignable_v<DataPtr>);
static_assert(std::is_nothrow_move_constructible_v<DataPtr>);
static_assert(!std::is_convertible_v<DataPtr, bool>, "only in a condition");
static_assert(sizeof(DataPtr) == 32);

TEST_F(DataPtrTest, DefaultIsNullOnTheCpu) {
  const DataPtr p;
  EXPECT_FALSE(p);
  EXPECT_TRUE(p == nullptr);
  EXPECT_EQ(p.get(), nullptr);
  EXPECT_EQ(p.get_context(), nullptr);
  EXPECT_EQ(p.get_deleter(), nullptr);
  EXPECT_EQ(p.device(), Device{});
}

TEST_F(DataPtrTest, NullKeepsItsDevice) {
  DataPtr p(cuda1_);
  EXPECT_FALSE(p);
  EXPECT_EQ(p.device(), cuda1_);
  p.clear();
  EXPECT_EQ(p.device(), cuda1_);
}

TEST_F(DataPtrTest, WithoutDeleterNothingIsFreed) {
  const auto before = data_;
  {
    DataPtr p(&data_, cuda1_);
    EXPECT_TRUE(p);
    EXPECT_EQ(p.get(), &data_);
    EXPECT_EQ(p.release_context(), nullptr);
  }
  EXPECT_TRUE(deleted().empty());
  EXPECT_EQ(data_, before);
}

TEST_F(DataPtrTest, DeleterGetsTheContextOnce) {
  { const DataPtr p(&data_, &context_, &record_delete, cuda1_); }
  EXPECT_EQ(deleted(), std::vector<void*>{&context_});
}

TEST_F(DataPtrTest, NullContextMeansTheDeleterGetsTheData) {
  { const DataPtr p(&data_, nullptr, &record_delete, cuda1_); }
  EXPECT_EQ(deleted(), std::vector<void*>{&data_});
}

TEST_F(DataPtrTest, DeleterIsNeverCalledWithNull) {
  {
    DataPtr p(nullptr, nullptr, &record_delete, cuda1_);
    p.clear();
    const DataPtr q(nullptr, nullptr, &record_delete, cuda1_);
  }
  EXPECT_TRUE(deleted().empty());
}

TEST_F(DataPtrTest, ContextIsDeletedEvenWhenTheDataIsNull) {
  { const DataPtr p(nullptr, &context_, &record_delete, cuda1_); }
  EXPECT_EQ(deleted(), std::vector<void*>{&context_});
}

TEST_F(DataPtrTest, ClearDeletesAtOnceAndOnlyOnce) {
  DataPtr p(&data_, &context_, &record_delete, cuda1_);
  p.clear();
  EXPECT_EQ(deleted().size(), 1u);
  EXPECT_FALSE(p);
  EXPECT_EQ(p.get_context(), nullptr);
  EXPECT_EQ(p.get_deleter(), nullptr);
  EXPECT_EQ(p.device(), cuda1_);
  p.clear();
  EXPECT_EQ(deleted().size(), 1u);
}

TEST_F(DataPtrTest, ReleaseContextGivesUpOwnershipAndLeavesTheDataReadable) {
  {
    DataPtr p(&data_, &context_, &record_delete, cuda1_);
    EXPECT_EQ(p.release_context(), &context_);
    EXPECT_EQ(p.get(), &data_);
    EXPECT_EQ(p.get_deleter(), nullptr);
    EXPECT_EQ(p.release_context(), nullptr) << "nothing is owed any more";
  }
  EXPECT_TRUE(deleted().empty());
}

TEST_F(DataPtrTest, ReleaseContextOfANullContextIsTheData) {
  DataPtr p(&data_, nullptr, &record_delete, cuda1_);
  EXPECT_EQ(p.release_context(), &data_) << "what the deleter must be given";
}

TEST_F(DataPtrTest, CompareExchangeReplacesOnlyTheExpectedDeleter) {
  {
    DataPtr p(&data_, &context_, &record_delete, cuda1_);
    EXPECT_FALSE(p.compare_exchange_deleter(&record_delete_twice, nullptr));
    EXPECT_EQ(p.get_deleter(), &record_delete);
    EXPECT_TRUE(p.compare_exchange_deleter(&record_delete, &record_delete_twice));
    EXPECT_EQ(p.get_deleter(), &record_delete_twice);
    EXPECT_EQ(p.get_context(), &context_);
  }
  EXPECT_EQ(deleted().size(), 2u);
}

TEST_F(DataPtrTest, CompareExchangeCanAddADeleterToBorrowedMemory) {
  {
    DataPtr p(&data_, cuda1_);
    EXPECT_TRUE(p.compare_exchange_deleter(nullptr, &record_delete));
  }
  EXPECT_EQ(deleted(), std::vector<void*>{&data_});
}

TEST_F(DataPtrTest, MoveLeavesTheSourceNullOnItsDevice) {
  DataPtr from(&data_, &context_, &record_delete, cuda1_);
  const DataPtr to(std::move(from));
  EXPECT_FALSE(from);
  EXPECT_EQ(from.get_deleter(), nullptr);
  EXPECT_EQ(from.get_context(), nullptr);
  EXPECT_EQ(from.device(), cuda1_);
  EXPECT_EQ(to.get(), &data_);
  EXPECT_EQ(to.get_context(), &context_);
  EXPECT_EQ(to.device(), cuda1_);
  EXPECT_TRUE(deleted().empty());
}

TEST_F(DataPtrTest, MoveAssignmentFreesWhatWasThereAndTakesTheDevice) {
  int other = 0;
  DataPtr to(&other, nullptr, &record_delete, Device{});
  DataPtr from(&data_, nullptr, &record_delete, cuda1_);
  to = std::move(from);
  EXPECT_EQ(deleted(), std::vector<void*>{&other});
  EXPECT_EQ(to.get(), &data_);
  EXPECT_EQ(to.device(), cuda1_);
  EXPECT_FALSE(from);
}

TEST_F(DataPtrTest, MoveToItselfChangesNothing) {
  DataPtr p(&data_, &context_, &record_delete, cuda1_);
  DataPtr& alias = p;
  p = std::move(alias);
  EXPECT_EQ(p.get(), &data_);
  EXPECT_EQ(p.get_context(), &context_);
  EXPECT_TRUE(deleted().empty());
}

// A deleter may look at the pointer that is being cleared: it finds it null already.
TEST_F(DataPtrTest, DeleterSeesAPointerThatIsAlreadyNull) {
  struct Holder {
    DataPtr pointer;
    bool was_null = false;
  } holder;
  holder.pointer = DataPtr(
      &data_, &holder,
      [](void* context) {
        auto* h = static_cast<Holder*>(context);
        h->was_null = h->pointer == nullptr && h->pointer.get_deleter() == nullptr;
      },
      cuda1_);
  holder.pointer.clear();
  EXPECT_TRUE(holder.was_null);
}

int contexts_freed = 0;
void free_context(void* context) {
  ++contexts_freed;
  delete static_cast<int*>(context);
}
void free_nothing(void*) {}

TEST(DataPtrContextTest, MovesOutAsAnOwner) {
  contexts_freed = 0;
  int data = 0;
  {
    DataPtr owner(&data, new int(7), &free_context, Device{});
    const auto context = owner.move_context();
    EXPECT_EQ(*static_cast<int*>(context.get()), 7);
    EXPECT_EQ(owner.get(), &data) << "still readable";
    owner.clear();
    EXPECT_EQ(contexts_freed, 0);
  }
  EXPECT_EQ(contexts_freed, 1);
  EXPECT_EQ(DataPtr(&data, Device{}).move_context(), nullptr) << "borrowed memory owes nothing";
}

TEST(DataPtrContextTest, IsCastOnlyForTheDeleterThatIsExpected) {
  int data = 0;
  const DataPtr owner(&data, new int(7), &free_context, Device{});
  EXPECT_EQ(*owner.cast_context<int>(&free_context), 7);
  EXPECT_EQ(owner.cast_context<int>(&free_nothing), nullptr);
}

TEST(DataPtrContextTest, ADeleterMayHaveState) {
  std::vector<void*> freed;
  int data = 0;
  {
    DataPtr owner =
        DataPtr::with_deleter(&data, [&freed](void* p) { freed.push_back(p); }, Device{});
    EXPECT_EQ(owner.get(), &data);
    DataPtr moved = std::move(owner);
    EXPECT_TRUE(freed.empty());
  }
  EXPECT_EQ(freed, (std::vector<void*>{&data}));
  EXPECT_EQ(DataPtr::with_deleter(nullptr, [](void*) { FAIL(); }, Device{}), nullptr);
}

}  // namespace
}  // namespace tenon
