// Reference counting inside the object. Counts are atomic: threads may copy and drop handles of one
// object at the same time, each thread its own handle. O(1). Nothing throws except make_intrusive
// (std::bad_alloc, and what T's constructor throws).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include "tenon/base/check.h"

namespace tenon {

template <typename T>
class IntrusivePtr;
template <typename T>
class WeakIntrusivePtr;
template <typename T, typename... Args>
IntrusivePtr<T> make_intrusive(Args&&... args);

// Base of everything an IntrusivePtr can hold.
//
// Both counts live in one atomic word: strong in the low half, weak in the high half. While any
// strong reference exists they hold one weak count together, so the object is deleted exactly when
// the word reaches zero. The usual end (last strong reference, no weak one held) is seen by
// one load and needs no second atomic operation. Counts up to 2^31 - 1; beyond that, TENON_DCHECK.
class IntrusiveTarget {
 public:
  IntrusiveTarget() = default;
  // The counts belong to the object, not to its value.
  IntrusiveTarget(const IntrusiveTarget&) {}
  IntrusiveTarget& operator=(const IntrusiveTarget&) { return *this; }

 protected:
  virtual ~IntrusiveTarget() = default;

 private:
  template <typename T>
  friend class IntrusivePtr;
  template <typename T>
  friend class WeakIntrusivePtr;
  template <typename T, typename... Args>
  friend IntrusivePtr<T> make_intrusive(Args&&... args);

  // Called once when the last strong reference goes while weak ones remain: gives up what is
  // expensive to keep. The destructor still runs later.
  virtual void release_resources() {}

  static constexpr std::uint64_t kStrong = 1;
  static constexpr std::uint64_t kWeak = std::uint64_t{1} << 32;
  static constexpr std::uint64_t kStrongMask = kWeak - 1;
  static constexpr std::uint64_t kUnique = kStrong + kWeak;

  void retain() const { counts_.fetch_add(kStrong, std::memory_order_relaxed); }
  void retain_weak() const { counts_.fetch_add(kWeak, std::memory_order_relaxed); }

  void release() const {
    // Unique: no other thread can reach the object, nor change the word after this load.
    if (counts_.load(std::memory_order_acquire) == kUnique) {
      counts_.store(0, std::memory_order_relaxed);
      delete this;
      return;
    }
    const std::uint64_t before = counts_.fetch_sub(kStrong, std::memory_order_acq_rel);
    TENON_DCHECK((before & kStrongMask) != 0, "released more often than retained");
    if ((before & kStrongMask) != 1) return;
    if (before != kUnique) const_cast<IntrusiveTarget*>(this)->release_resources();
    release_weak();
  }

  void release_weak() const {
    if (counts_.fetch_sub(kWeak, std::memory_order_acq_rel) == kWeak) delete this;
  }

  // A strong reference from a weak one; false when the object has already ended.
  bool try_retain() const {
    std::uint64_t now = counts_.load(std::memory_order_relaxed);
    while ((now & kStrongMask) != 0) {
      if (counts_.compare_exchange_weak(now, now + kStrong, std::memory_order_acq_rel,
                                        std::memory_order_relaxed))
        return true;
    }
    return false;
  }

  std::uint32_t strong_count() const {
    return static_cast<std::uint32_t>(counts_.load(std::memory_order_acquire) & kStrongMask);
  }
  std::uint32_t weak_count() const {
    const std::uint64_t now = counts_.load(std::memory_order_acquire);
    return static_cast<std::uint32_t>(now >> 32) - ((now & kStrongMask) != 0 ? 1 : 0);
  }

  mutable std::atomic<std::uint64_t> counts_{0};
};

// A shared, owning pointer to an IntrusiveTarget. One word; copying is one relaxed increment.
template <typename T>
class IntrusivePtr {
 public:
  // What it points to.
  using element_type = T;

  IntrusivePtr() = default;
  IntrusivePtr(std::nullptr_t) {}
  IntrusivePtr(const IntrusivePtr& other) : target_(other.target_) {
    if (target_ != nullptr) target_->IntrusiveTarget::retain();
  }
  IntrusivePtr(IntrusivePtr&& other) noexcept : target_(std::exchange(other.target_, nullptr)) {}
  template <typename U>
    requires std::is_convertible_v<U*, T*>
  IntrusivePtr(IntrusivePtr<U> other) noexcept : target_(other.release()) {}
  ~IntrusivePtr() {
    if (target_ != nullptr) target_->IntrusiveTarget::release();
  }
  // Lets the earlier target go.
  IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(target_, other.target_);
    return *this;
  }

  // Takes over one reference that an earlier release() gave out.
  static IntrusivePtr reclaim(T* owned) {
    IntrusivePtr p;
    p.target_ = owned;
    return p;
  }
  // A new reference to an object that other code keeps alive.
  static IntrusivePtr retain_copy(T* borrowed) {
    if (borrowed != nullptr) borrowed->IntrusiveTarget::retain();
    return reclaim(borrowed);
  }
  // Gives the reference away; the caller owes a reclaim().
  [[nodiscard]] T* release() noexcept { return std::exchange(target_, nullptr); }

  // Lets the target go, which ends with its last reference; and the usual pointer's questions. The
  // counts may be out of date at once where other threads hold references.
  void reset() { *this = IntrusivePtr(); }
  T* get() const { return target_; }
  T& operator*() const { return *target_; }
  T* operator->() const { return target_; }
  explicit operator bool() const { return target_ != nullptr; }
  bool defined() const { return target_ != nullptr; }
  std::uint32_t use_count() const { return target_ == nullptr ? 0 : target_->strong_count(); }
  std::uint32_t weak_use_count() const { return target_ == nullptr ? 0 : target_->weak_count(); }
  bool unique() const { return use_count() == 1; }

  friend bool operator==(const IntrusivePtr& a, const IntrusivePtr& b) {
    return a.target_ == b.target_;
  }
  friend bool operator==(const IntrusivePtr& a, std::nullptr_t) { return a.target_ == nullptr; }

 private:
  template <typename U, typename... Args>
  friend IntrusivePtr<U> make_intrusive(Args&&... args);
  template <typename U>
  friend class WeakIntrusivePtr;

  T* target_ = nullptr;
};

// Creates a T with its first reference.
template <typename T, typename... Args>
IntrusivePtr<T> make_intrusive(Args&&... args) {
  static_assert(std::is_base_of_v<IntrusiveTarget, T>);
  T* target = new T(std::forward<Args>(args)...);
  target->counts_.store(IntrusiveTarget::kUnique, std::memory_order_relaxed);
  return IntrusivePtr<T>::reclaim(target);
}

// Keeps the object's memory, not the object: lock() gives it back while it lives.
template <typename T>
class WeakIntrusivePtr {
 public:
  WeakIntrusivePtr() = default;
  explicit WeakIntrusivePtr(const IntrusivePtr<T>& strong) : target_(strong.get()) {
    if (target_ != nullptr) target_->IntrusiveTarget::retain_weak();
  }
  WeakIntrusivePtr(const WeakIntrusivePtr& other) : target_(other.target_) {
    if (target_ != nullptr) target_->IntrusiveTarget::retain_weak();
  }
  WeakIntrusivePtr(WeakIntrusivePtr&& other) noexcept
      : target_(std::exchange(other.target_, nullptr)) {}
  ~WeakIntrusivePtr() {
    if (target_ != nullptr) target_->release_weak();
  }
  // Watches another target.
  WeakIntrusivePtr& operator=(WeakIntrusivePtr other) noexcept {
    std::swap(target_, other.target_);
    return *this;
  }

  // A reference to the target; null if it has ended. Thread-safe.
  IntrusivePtr<T> lock() const {
    if (target_ == nullptr || !target_->try_retain()) return {};
    return IntrusivePtr<T>::reclaim(target_);
  }
  // Whether the target has ended: true stays true.
  bool expired() const { return target_ == nullptr || target_->strong_count() == 0; }
  // Watches nothing.
  void reset() { *this = WeakIntrusivePtr(); }

 private:
  T* target_ = nullptr;
};

}  // namespace tenon

template <typename T>
struct std::hash<tenon::IntrusivePtr<T>> {
  std::size_t operator()(const tenon::IntrusivePtr<T>& p) const {
    return std::hash<T*>()(p.get());
  }
};
