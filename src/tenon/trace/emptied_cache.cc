#include "tenon/trace/emptied_cache.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {
namespace {

// What the driver had given at each mark, before it, compared with the start of the recording. Sums
// of sizes that no machine has, as in a damaged file, wrap.
class HeldBytes {
 public:
  explicit HeldBytes(std::span<const TraceMark> marks) {
    std::uint64_t held = 0;
    for (const TraceMark& mark : marks) {
      before_.push_back(held);
      if (memory_came(mark.kind)) held += mark.size_bytes;
      if (memory_went(mark.kind)) held -= mark.size_bytes;
      most_ = std::max(most_, static_cast<std::int64_t>(held));
    }
  }

  // Whether the device had room for so many bytes more, as it had at another time.
  bool had_room(std::size_t mark, std::uint64_t bytes) const {
    return static_cast<std::int64_t>(before_[mark] + bytes) <= most_;
  }

 private:
  std::vector<std::uint64_t> before_;
  std::int64_t most_ = 0;
};

// What the call stacks of marks say of who gave memory back. Each stack is read once.
class Callers {
 public:
  enum class Caller : std::uint8_t { kNotRead, kProgram, kPool, kUnknown };

  explicit Callers(const SiteTable& sites) : sites_(sites), callers_(sites.stacks()) {}

  std::uint32_t stack(const TraceMark& mark) const { return sites_.site(mark.site).stack; }
  Caller caller(const TraceMark& mark) {
    Caller& known = callers_[stack(mark)];
    if (known == Caller::kNotRead) known = read(stack(mark));
    return known;
  }

 private:
  Caller read(std::uint32_t stack) const {
    Caller found = Caller::kUnknown;
    for (const std::uint32_t frame : sites_.stack(stack)) {
      const std::string_view function = sites_.text(sites_.frame(frame).function);
      const auto names = [&](std::string_view what) {
        return function.find(what) != std::string_view::npos;
      };
      if (names("MemPool")) return Caller::kPool;  // a pool was destroyed
      if (names("empty_cache") || names("emptyCache")) found = Caller::kProgram;
    }
    return found;
  }

  const SiteTable& sites_;
  std::vector<Caller> callers_;
};

// Whether the program gave back what the marks [first, end) name.
bool program_called(std::span<const TraceMark> marks, std::size_t first, std::size_t end,
                    Callers& callers, const HeldBytes& held) {
  const TraceMark& last = marks[end - 1];
  const bool followed = end < marks.size() && marks[end].event == last.event;
  if (followed && marks[end].kind == MarkKind::kEmptyCache) return false;  // it has its mark
  if (callers.caller(last) == Callers::Caller::kPool) return false;
  if (callers.caller(last) == Callers::Caller::kProgram || !followed) return true;
  const TraceMark& next = marks[end];
  if (!memory_came(next.kind) && next.kind != MarkKind::kOutOfMemory) return true;
  if (callers.stack(next) != callers.stack(last)) return true;
  return callers.stack(last) == 0 && memory_came(next.kind) &&
         held.had_room(first, next.size_bytes);
}

}  // namespace

void mark_emptied_caches(Trace& trace, const SiteTable& sites) {
  Callers callers(sites);
  const HeldBytes held(trace.marks);
  std::vector<TraceMark> marks;
  marks.reserve(trace.marks.size());
  for (std::size_t first = 0; first < trace.marks.size();) {
    std::size_t end = first;
    std::uint64_t bytes = 0;
    for (; end < trace.marks.size() && memory_went(trace.marks[end].kind) &&
           trace.marks[end].event == trace.marks[first].event;
         ++end)
      bytes += trace.marks[end].size_bytes;
    const bool run = end > first;
    if (!run) ++end;
    marks.insert(marks.end(), trace.marks.begin() + static_cast<std::ptrdiff_t>(first),
                 trace.marks.begin() + static_cast<std::ptrdiff_t>(end));
    if (run && program_called(trace.marks, first, end, callers, held)) {
      TraceMark mark = trace.marks[end - 1];
      mark.kind = MarkKind::kEmptyCache;
      mark.address = 0;
      mark.size_bytes = bytes;
      marks.push_back(mark);
    }
    first = end;
  }
  trace.marks = std::move(marks);
}

}  // namespace tenon
