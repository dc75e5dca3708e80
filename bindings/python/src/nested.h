// What must end on the thread that began it, the last begun first. C++ scopes do so by themselves;
// Python's `with` does too, unless a generator or a program's own calls break the order.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tenon::python {

// Holds a State from begin() to end(): its constructor and destructor are what happens. A holder
// that goes without end() leaves its State to the thread, which ends it after those that were begun
// inside. On another thread that cannot be, and the State stays for ever. Needs the GIL.
template <typename State>
class Nested {
 public:
  explicit Nested(const char* name) : name_(name) {}
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  ~Nested();

  explicit operator bool() const { return state_ != nullptr; }
  State* operator->() const { return state_.get(); }

  template <typename... Arguments>
  void begin(Arguments&&... arguments);
  // Throws std::runtime_error, and changes nothing, on another thread or out of order.
  void end();

 private:
  const char* const name_;
  std::uint64_t number_ = 0;  // never that of another one, unlike an address
  std::unique_ptr<State> state_;
};

struct OpenHere {
  std::uint64_t number;
  void* state = nullptr;  // of a holder that is gone
  void (*drop)(void* state) = nullptr;
};
inline thread_local std::vector<OpenHere> open_here;
inline std::uint64_t last_opened = 0;

// Ends what is the innermost now, and has no holder.
inline void end_those_without_holder() {
  while (!open_here.empty() && open_here.back().state != nullptr) {
    const OpenHere innermost = open_here.back();
    open_here.pop_back();
    innermost.drop(innermost.state);
  }
}

template <typename State>
Nested<State>::~Nested() {
  State* const state = state_.release();
  if (state == nullptr) return;
  for (OpenHere& open : open_here) {
    if (open.number != number_) continue;
    open.state = state;
    open.drop = [](void* it) { delete static_cast<State*>(it); };
  }
  end_those_without_holder();
}

template <typename State>
template <typename... Arguments>
void Nested<State>::begin(Arguments&&... arguments) {
  if (state_) throw std::runtime_error(fmt::format("the {} is open already", name_));
  open_here.reserve(open_here.size() + 1);
  state_ = std::make_unique<State>(std::forward<Arguments>(arguments)...);
  open_here.push_back({.number = number_ = ++last_opened});
}

template <typename State>
void Nested<State>::end() {
  if (!state_) throw std::runtime_error(fmt::format("the {} is not open", name_));
  if (open_here.empty() || open_here.back().number != number_)
    throw std::runtime_error(fmt::format(
        "{}: end it on the thread that began it, and after those that were begun inside", name_));
  open_here.pop_back();
  state_.reset();
  end_those_without_holder();
}

}  // namespace tenon::python
