#include "tenon/base/intrusive_ptr.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <unordered_set>
#include <vector>

namespace tenon {
namespace {

// Counts what happens to objects of this test.
struct Events {
  std::atomic<int> made = 0;
  std::atomic<int> released = 0;
  std::atomic<int> destroyed = 0;
};

class Thing : public IntrusiveTarget {
 public:
  explicit Thing(Events& events, int number = 0) : value(number), events_(&events) {
    ++events_->made;
  }
  Thing(const Thing& other) : IntrusiveTarget(other), value(other.value), events_(other.events_) {
    ++events_->made;
  }
  Thing& operator=(const Thing& other) {
    IntrusiveTarget::operator=(other);
    value = other.value;
    return *this;
  }
  ~Thing() override { ++events_->destroyed; }

  int value;

 private:
  void release_resources() override { ++events_->released; }
  Events* events_;
};

class Derived : public Thing {
 public:
  using Thing::Thing;
};

TEST(IntrusivePtr, NullHoldsNothing) {
  const IntrusivePtr<Thing> null;
  EXPECT_FALSE(null);
  EXPECT_FALSE(null.defined());
  EXPECT_EQ(null, nullptr);
  EXPECT_EQ(null.use_count(), 0u);
  const IntrusivePtr<Thing> copy = null;
  EXPECT_EQ(copy, null);
  EXPECT_EQ(IntrusivePtr<Thing>::retain_copy(nullptr), nullptr);
}

TEST(IntrusivePtr, LastReferenceDeletes) {
  Events events;
  auto first = make_intrusive<Thing>(events, 7);
  EXPECT_EQ(first->value, 7);
  EXPECT_TRUE(first.unique());
  IntrusivePtr<Thing> second = first;
  EXPECT_EQ(first.use_count(), 2u);
  first.reset();
  EXPECT_EQ(events.destroyed, 0);
  EXPECT_TRUE(second.unique());
  second.reset();
  EXPECT_EQ(events.destroyed, 1);
  EXPECT_EQ(events.released, 0) << "with nobody left there is nothing to release early";
}

TEST(IntrusivePtr, MoveAndAssignmentKeepTheCount) {
  Events events;
  auto first = make_intrusive<Thing>(events);
  IntrusivePtr<Thing> moved = std::move(first);
  EXPECT_EQ(first, nullptr);
  EXPECT_EQ(moved.use_count(), 1u);
  IntrusivePtr<Thing>& alias = moved;
  moved = alias;  // to itself
  EXPECT_EQ(moved.use_count(), 1u);
  moved = make_intrusive<Thing>(events);
  EXPECT_EQ(events.destroyed, 1);
  moved = nullptr;
  EXPECT_EQ(events.destroyed, 2);
}

TEST(IntrusivePtr, ConvertsToItsBase) {
  Events events;
  {
    IntrusivePtr<Thing> base = make_intrusive<Derived>(events, 3);
    EXPECT_EQ(base->value, 3);
    EXPECT_EQ(base.use_count(), 1u);
  }
  EXPECT_EQ(events.destroyed, 1);
}

TEST(IntrusivePtr, ReferencesTravelAsBarePointers) {
  Events events;
  Thing* bare = make_intrusive<Thing>(events).release();
  EXPECT_EQ(events.destroyed, 0);
  {
    const auto borrowed = IntrusivePtr<Thing>::retain_copy(bare);
    EXPECT_EQ(borrowed.use_count(), 2u);
  }
  const auto owner = IntrusivePtr<Thing>::reclaim(bare);
  EXPECT_EQ(owner.use_count(), 1u);
}

TEST(IntrusivePtr, ACopiedObjectHasItsOwnCount) {
  Events events;
  const auto original = make_intrusive<Thing>(events, 5);
  const auto another = original;
  const auto copy = make_intrusive<Thing>(*original);
  EXPECT_EQ(copy.use_count(), 1u);
  EXPECT_EQ(copy->value, 5);
  *copy = *original;
  EXPECT_EQ(copy.use_count(), 1u);
  EXPECT_EQ(original.use_count(), 2u);
}

TEST(IntrusivePtr, HashesLikeItsPointer) {
  Events events;
  std::unordered_set<IntrusivePtr<Thing>> set;
  const auto thing = make_intrusive<Thing>(events);
  set.insert(thing);
  set.insert(thing);
  set.insert(make_intrusive<Thing>(events));
  EXPECT_EQ(set.size(), 2u);
  EXPECT_EQ(set.count(thing), 1u);
}

TEST(WeakIntrusivePtr, LocksWhileTheObjectLives) {
  Events events;
  auto strong = make_intrusive<Thing>(events, 9);
  const WeakIntrusivePtr<Thing> weak(strong);
  EXPECT_EQ(strong.weak_use_count(), 1u);
  EXPECT_EQ(strong.use_count(), 1u);
  EXPECT_FALSE(weak.expired());
  EXPECT_EQ(weak.lock()->value, 9);
  strong.reset();
  EXPECT_TRUE(weak.expired());
  EXPECT_EQ(weak.lock(), nullptr);
}

TEST(WeakIntrusivePtr, KeepsTheMemoryButNotTheResources) {
  Events events;
  auto strong = make_intrusive<Thing>(events);
  WeakIntrusivePtr<Thing> weak(strong);
  WeakIntrusivePtr<Thing> other = weak;
  strong.reset();
  EXPECT_EQ(events.released, 1);
  EXPECT_EQ(events.destroyed, 0);
  weak.reset();
  EXPECT_EQ(events.destroyed, 0);
  other.reset();
  EXPECT_EQ(events.destroyed, 1);
  EXPECT_EQ(events.released, 1);
}

TEST(WeakIntrusivePtr, NullIsExpired) {
  const WeakIntrusivePtr<Thing> weak;
  EXPECT_TRUE(weak.expired());
  EXPECT_EQ(weak.lock(), nullptr);
  EXPECT_EQ(WeakIntrusivePtr<Thing>(IntrusivePtr<Thing>()).lock(), nullptr);
}

TEST(IntrusivePtr, ThreadsShareOneObject) {
  Events events;
  {
    const auto shared = make_intrusive<Thing>(events, 1);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([shared] {
        for (int i = 0; i < 20000; ++i) {
          const IntrusivePtr<Thing> copy = shared;
          const IntrusivePtr<Thing> second = copy;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    EXPECT_TRUE(shared.unique());
    EXPECT_EQ(events.destroyed, 0);
  }
  EXPECT_EQ(events.destroyed, 1);
}

TEST(WeakIntrusivePtr, ThreadsRaceLockAgainstTheLastRelease) {
  for (int round = 0; round < 2000; ++round) {
    Events events;
    auto strong = make_intrusive<Thing>(events, round);
    WeakIntrusivePtr<Thing> weak(strong);
    std::thread other([weak = std::move(weak), round] {
      while (const auto locked = weak.lock()) ASSERT_EQ(locked->value, round);
    });
    strong.reset();
    other.join();
    ASSERT_EQ(events.destroyed, 1);
  }
}

}  // namespace
}  // namespace tenon
