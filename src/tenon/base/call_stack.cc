#include "tenon/base/call_stack.h"

#include <execinfo.h>

#include <algorithm>

#include "tenon/base/code_place.h"

namespace tenon {

CallStack CallStack::capture(int depth, int skip) {
  CallStack stack;
  if (depth <= 0) return stack;
  constexpr int kOwnFrames = 1;
  constexpr int kMaxSkip = 16;
  skip = std::min(skip, kMaxSkip) + kOwnFrames;
  std::array<void*, kMaxDepth + kMaxSkip + kOwnFrames> all;
  const int wanted = std::min(depth, kMaxDepth) + skip;
  const int got = ::backtrace(all.data(), wanted);
  for (int i = skip; i < got; ++i)
    stack.frames_[static_cast<std::size_t>(stack.depth_++)] = all[static_cast<std::size_t>(i)];
  return stack;
}

std::string CallStack::to_string() const {
  std::string text;
  for (int i = 0; i < depth_; ++i) text += describe_code(frame(i));
  return text;
}

}  // namespace tenon
