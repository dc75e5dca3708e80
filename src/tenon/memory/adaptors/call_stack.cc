#include "tenon/memory/adaptors/call_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

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
  for (int i = 0; i < depth_; ++i) {
    void* const address = frame(i);
    Dl_info info = {};
    if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
      text += fmt::format("    at {}\n", address);
      continue;
    }
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (info.dli_sname == nullptr) {
      text += fmt::format("    at {:#x} in {}\n",
                          at - reinterpret_cast<std::uintptr_t>(info.dli_fbase), info.dli_fname);
      continue;
    }
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), &std::free);
    text += fmt::format("    at {} + {:#x} ({})\n", status == 0 ? name.get() : info.dli_sname,
                        at - reinterpret_cast<std::uintptr_t>(info.dli_saddr), info.dli_fname);
  }
  return text;
}

}  // namespace tenon
