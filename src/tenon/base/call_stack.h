// Where in the program something happened. Thread-safe: a capture reads the calling thread's stack,
// and a CallStack is a value. O(frames). The only error: no memory for a text (std::bad_alloc).
#pragma once

#include <array>
#include <string>

namespace tenon {

// The return addresses of the calling functions, innermost first. Capturing costs about a
// microsecond a frame; names are looked up only when they are asked for.
class CallStack {
 public:
  static constexpr int kMaxDepth = 32;

  CallStack() = default;
  // At most `depth` frames (0: none), without this function and the `skip` innermost callers.
  static CallStack capture(int depth, int skip = 0);

  // How many return addresses were taken, and each, innermost first.
  bool empty() const { return depth_ == 0; }
  int depth() const { return depth_; }
  void* frame(int i) const { return frames_[static_cast<std::size_t>(i)]; }

  // A line a frame, or more where calls were inlined: see describe_code.
  std::string to_string() const;

  friend bool operator==(const CallStack&, const CallStack&) = default;
  // Some order, for maps. LLVM's library 14 has no <=> for arrays.
  friend bool operator<(const CallStack& a, const CallStack& b) {
    return a.depth_ != b.depth_ ? a.depth_ < b.depth_ : a.frames_ < b.frames_;
  }

 private:
  int depth_ = 0;
  std::array<void*, kMaxDepth> frames_ = {};
};

}  // namespace tenon
