// What a guard says of a block that was used wrongly. Plain data: thread-safe while no thread
// writes it. The only error: no memory for a text (std::bad_alloc). O(frames).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tenon/base/call_stack.h"
#include "tenon/memory/tag.h"

namespace tenon {

// One piece of damage; or, while there is none, what is known of a block.
struct GuardReport {
  // What a program did wrong with a block.
  enum class Kind : std::uint8_t { kUnderflow, kOverflow, kUseAfterFree, kDoubleFree };
  Kind kind = Kind::kOverflow;
  const void* data = nullptr;     // the block's
  std::uint64_t size_bytes = 0;   // as asked for
  bool faulted = false;           // no byte was changed: the access itself was stopped
  std::int64_t first_offset = 0;  // of the first damaged byte, counted from `data`
  std::int64_t last_offset = 0;   // of the last one
  std::string found;              // the first damaged bytes, in hexadecimal
  Tag made_by;                    // the thread's tag when the block was made, and when it was freed
  Tag freed_by;
  CallStack made_at;
  CallStack freed_at;    // empty while the block lives
  CallStack noticed_at;  // the second free, or where the damage came to light

  // A line that says all this, and the stacks.
  std::string to_string() const;
};

// For guards: bytes that no program should write have one value, and are looked at later.
namespace guard {

inline constexpr unsigned char kFrontZone = 0xfb;  // before a block
inline constexpr unsigned char kBackZone = 0xfd;   // after it
inline constexpr unsigned char kPoison = 0xdd;     // a freed block

// A block that is made, and freed, by the calling function. Stacks: `stack_depth` frames at most.
GuardReport block_made(const void* data, std::uint64_t size_bytes, int stack_depth);
void note_freed(GuardReport& block, int stack_depth);

// What the calling function noticed about the block.
GuardReport noticed(GuardReport::Kind kind, const GuardReport& block, int stack_depth);
// The same of its outermost bytes that are not `expected` any more, of `size` at an offset from its
// data; none where all are. O(size), at memcmp's speed.
std::optional<GuardReport> damage(GuardReport::Kind kind, const GuardReport& block,
                                  std::int64_t offset, std::size_t size, unsigned char expected,
                                  int stack_depth);

}  // namespace guard
}  // namespace tenon
