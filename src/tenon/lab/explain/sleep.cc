#include "tenon/lab/explain/sleep.h"

#include <algorithm>
#include <map>

namespace tenon {
namespace {

struct Now {
  std::size_t place = 0;  // in the list of tags
  std::uint64_t bytes = 0;
  std::int64_t since_us = 0;
  std::int64_t latest_us = -1;  // ranges that fall asleep together have one time
};

}  // namespace

std::vector<TagSleep> tag_sleeps(const Trace& trace, std::size_t peak_events) {
  std::vector<TagSleep> tags;
  std::map<std::uint32_t, Now> known;  // by text
  std::int64_t end_us = trace.events.empty() ? 0 : trace.events.back().time_us;
  for (const TraceMark& mark : trace.marks) {
    if (!is_sleep(mark.kind) && mark.kind != MarkKind::kWake) continue;
    end_us = std::max(end_us, mark.time_us);
    const auto [entry, fresh] = known.try_emplace(mark.text);
    Now& now = entry->second;
    if (fresh) {
      now.place = tags.size();
      tags.push_back({std::string(trace.sites->text(mark.text)), 0, 0, 0, 0, 0, 0});
    }
    TagSleep& tag = tags[now.place];
    if (mark.kind == MarkKind::kWake) {
      const std::uint64_t before = now.bytes;
      now.bytes -= std::min(now.bytes, mark.size_bytes);
      if (before > 0 && now.bytes == 0) tag.asleep_us += mark.time_us - now.since_us;
    } else {
      if (now.bytes == 0) now.since_us = mark.time_us;
      if (mark.time_us != now.latest_us) ++tag.times;
      now.latest_us = mark.time_us;
      now.bytes += mark.size_bytes;
      tag.most_bytes = std::max(tag.most_bytes, now.bytes);
      if (mark.kind == MarkKind::kSleepDropped) tag.dropped_bytes += mark.size_bytes;
    }
    if (mark.event < peak_events) tag.at_peak_bytes = now.bytes;
  }
  for (const auto& [text, now] : known) {
    tags[now.place].at_end_bytes = now.bytes;
    if (now.bytes > 0) tags[now.place].asleep_us += end_us - now.since_us;
  }
  return tags;
}

}  // namespace tenon
