#include "tenon/memory/adaptors/guard_report.h"

#include <fmt/format.h>

namespace tenon {
namespace {

// The rest of "a write ...", "an access ...".
const char* where(GuardReport::Kind kind) {
  switch (kind) {
    case GuardReport::Kind::kUnderflow:
      return "before";
    case GuardReport::Kind::kOverflow:
      return "past the end of";
    case GuardReport::Kind::kUseAfterFree:
      return "after free into";
    case GuardReport::Kind::kDoubleFree:
      break;
  }
  return "to";
}

// "  made at", in which phase and by whom if the program said so, and the stack.
void add_place(std::string& text, const char* what, const Tag& tag, const CallStack& stack) {
  if (stack.empty() && tag.phase == nullptr && tag.call_site == nullptr) return;
  text += fmt::format("  {}", what);
  if (tag.phase != nullptr) text += fmt::format(" in phase {}", tag.phase);
  if (tag.call_site != nullptr) text += fmt::format(" by {}", tag.call_site);
  text += stack.empty() ? "\n" : " at\n" + stack.to_string();
}

}  // namespace

std::string GuardReport::to_string() const {
  const std::string block = fmt::format("a block of {} bytes at {}", size_bytes, data);
  std::string text;
  if (kind == Kind::kDoubleFree)
    text = "second free of " + block;
  else if (faulted)
    text = fmt::format("access {} {}: byte {}", where(kind), block, first_offset);
  else
    text = fmt::format("write {} {}: bytes {} to {} of it were overwritten, now {}", where(kind),
                       block, first_offset, last_offset, found);
  text += "\n";
  add_place(text, "made", made_by, made_at);
  add_place(text, "freed", freed_by, freed_at);
  add_place(text, kind == Kind::kDoubleFree ? "freed again" : "noticed", {}, noticed_at);
  return text;
}

}  // namespace tenon
