// Handles: numbers that stand for objects, and can be checked.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace tenon::c {

enum class Kind : std::uint8_t { kBackend = 1, kAllocator, kObserver, kRecording, kTraces };
const char* kind_name(Kind kind);

// What a handle stands for.
class Object {
 public:
  explicit Object(Kind kind) : kind_(kind) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  Kind kind() const { return kind_; }

 private:
  const Kind kind_;
};

// All objects that live, by their handle. A handle is a serial number in the lower half and a word
// that follows from it and the kind in the upper: a number that was made up has 1 chance in 2^32.
// Each handle that was ever given out costs 8 bytes. Finding takes no lock.
class Handles {
 public:
  static std::uint64_t add(std::unique_ptr<Object> object);
  // Throws InvalidHandle for what is no live handle of T.
  template <typename T>
  static T& find(std::uint64_t handle) {
    return static_cast<T&>(find_object(handle, T::kKind));
  }
  template <typename T>
  static std::unique_ptr<T> take(std::uint64_t handle) {
    return std::unique_ptr<T>(static_cast<T*>(take_object(handle, T::kKind).release()));
  }

 private:
  static constexpr std::uint64_t kChunk = 1 << 12;
  static constexpr std::uint64_t kChunks = 1 << 16;
  using Slot = std::atomic<Object*>;

  static std::uint64_t handle_of(std::uint32_t serial, Kind kind);
  static Slot* slot_of(std::uint64_t handle, Kind kind);
  static Object& find_object(std::uint64_t handle, Kind kind);
  static std::unique_ptr<Object> take_object(std::uint64_t handle, Kind kind);

  static std::atomic<Slot*> chunks_[kChunks];
  static std::mutex mutex_;        // for adding
  static std::uint64_t count_;
};

}  // namespace tenon::c
