// A pointer to memory that knows how to free it, and where it lives. O(1) beside the deleter.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "tenon/device/device.h"

namespace tenon {

// Frees the memory that its context stands for.
using DeleterFn = void (*)(void* context);

// Unique ownership of a piece of memory: the data pointer, a context, the deleter that is given
// the context, and the device.
//
// A null context with a deleter means that the deleter gets the data pointer. A deleter is never
// called with null. A null DataPtr keeps its device. 32 bytes; moving leaves the source null.
// Not thread-safe (one owner).
class DataPtr {
 public:
  DataPtr() = default;
  // A null pointer on a device: what a request of zero bytes gives.
  explicit DataPtr(Device device) : device_(device) {}
  // Memory that other code owns.
  DataPtr(void* data, Device device) : data_(data), device_(device) {}
  DataPtr(void* data, void* context, DeleterFn deleter, Device device)
      : data_(data), context_(context), deleter_(deleter), device_(device) {}

  DataPtr(DataPtr&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        context_(std::exchange(other.context_, nullptr)),
        deleter_(std::exchange(other.deleter_, nullptr)),
        device_(other.device_) {}
  // Lets its own memory go first.
  DataPtr& operator=(DataPtr&& other) {
    if (this == &other) return *this;
    clear();
    data_ = std::exchange(other.data_, nullptr);
    context_ = std::exchange(other.context_, nullptr);
    deleter_ = std::exchange(other.deleter_, nullptr);
    device_ = other.device_;
    return *this;
  }
  // An exception that leaves a destructor ends the program. Where the driver may refuse memory that
  // goes back to it, call clear() first: its DeviceError can be caught.
  ~DataPtr() { clear(); }

  // The data, the context, the deleter and the device, as they were given.
  void* get() const { return data_; }
  void* get_context() const { return context_; }
  DeleterFn get_deleter() const { return deleter_; }
  Device device() const { return device_; }
  explicit operator bool() const { return data_ != nullptr; }

  // Lets the memory go: the deleter runs, the pointer becomes null and keeps its device.
  void clear() {
    void* const data = std::exchange(data_, nullptr);
    void* const context = std::exchange(context_, nullptr);
    const DeleterFn deleter = std::exchange(deleter_, nullptr);
    if (deleter == nullptr) return;
    if (void* argument = context != nullptr ? context : data) deleter(argument);
  }

  // Gives up ownership without running the deleter. Returns what the deleter must be given to free
  // the memory, or null when there is no deleter. The data pointer stays readable.
  [[nodiscard]] void* release_context() {
    void* owed = deleter_ == nullptr ? nullptr : (context_ != nullptr ? context_ : data_);
    context_ = nullptr;
    deleter_ = nullptr;
    return owed;
  }

  // The same as an owner that runs the deleter, so that nothing is lost if it is dropped.
  [[nodiscard]] std::unique_ptr<void, DeleterFn> move_context() {
    const DeleterFn deleter = deleter_ != nullptr ? deleter_ : [](void*) {};
    return {release_context(), deleter};
  }

  // The context as what `expected` is given, where that is the deleter; else null.
  template <typename T>
  T* cast_context(DeleterFn expected) const {
    return deleter_ == expected ? static_cast<T*>(context_) : nullptr;
  }

  // Memory that a callable frees, with what it captured: deleter(data). Null `data` frees nothing.
  template <typename Deleter>
  static DataPtr with_deleter(void* data, Deleter deleter, Device device) {
    struct Owed {
      void* data;
      Deleter deleter;
    };
    if (data == nullptr) return DataPtr(device);
    return {data, new Owed{data, std::move(deleter)},
            [](void* context) {
              const std::unique_ptr<Owed> owed(static_cast<Owed*>(context));
              owed->deleter(owed->data);
            },
            device};
  }

  // Replaces the deleter if it is `expected`, so that it can be wrapped. True when it was.
  [[nodiscard]] bool compare_exchange_deleter(DeleterFn expected, DeleterFn replacement) {
    if (deleter_ != expected) return false;
    deleter_ = replacement;
    return true;
  }

 private:
  void* data_ = nullptr;
  void* context_ = nullptr;
  DeleterFn deleter_ = nullptr;
  Device device_;
};

// Whether there is no memory.
inline bool operator==(const DataPtr& p, std::nullptr_t) { return p.get() == nullptr; }

}  // namespace tenon
