#include "tenon/memory/adaptors/guard_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace tenon {
namespace {

// The rest of "a write ...", "an access ...".
const char* where(GuardReport::Kind kind) {
  static constexpr const char* kWhere[] = {"before", "past the end of", "after free into", "to"};
  return kWhere[static_cast<std::size_t>(kind)];
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

namespace guard {

GuardReport block_made(const void* data, std::uint64_t size_bytes, int stack_depth) {
  GuardReport block;
  block.data = data;
  block.size_bytes = size_bytes;
  block.made_by = current_tag();
  block.made_at = CallStack::capture(stack_depth, 2);
  return block;
}

void note_freed(GuardReport& block, int stack_depth) {
  block.freed_by = current_tag();
  block.freed_at = CallStack::capture(stack_depth, 2);
}

GuardReport noticed(GuardReport::Kind kind, const GuardReport& block, int stack_depth) {
  GuardReport report = block;
  report.kind = kind;
  report.noticed_at = CallStack::capture(stack_depth, 2);
  return report;
}

std::optional<GuardReport> damage(GuardReport::Kind kind, const GuardReport& block,
                                  std::int64_t offset, std::size_t size, unsigned char expected,
                                  int stack_depth) {
  constexpr std::size_t kMostFound = 8;
  const auto* const bytes = static_cast<const unsigned char*>(block.data) + offset;
  // All alike: the first is right and each equals its neighbour.
  if (size == 0 || (bytes[0] == expected && std::memcmp(bytes, bytes + 1, size - 1) == 0))
    return std::nullopt;
  std::size_t first = 0;
  std::size_t last = size - 1;
  while (bytes[first] == expected) ++first;
  while (bytes[last] == expected) --last;
  const std::span damaged(bytes + first, last - first + 1);
  GuardReport report = noticed(kind, block, stack_depth);
  report.first_offset = offset + static_cast<std::int64_t>(first);
  report.last_offset = offset + static_cast<std::int64_t>(last);
  report.found = fmt::format(
      "{:02x}{}", fmt::join(damaged.first(std::min(kMostFound, damaged.size())), " "),
      damaged.size() > kMostFound ? " ..." : "");
  return report;
}

}  // namespace guard
}  // namespace tenon
