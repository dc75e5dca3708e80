#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tenon/base/byte_size.h"
#include "tenon/base/printable.h"
#include "tenon/lab/explain/explain.h"
#include "tenon/lab/text_table.h"

namespace tenon {
namespace {

std::string time(std::int64_t us) { return format_duration_ns(static_cast<double>(us) * 1000); }

class ExplanationText {
 public:
  ExplanationText(const Explanation& explanation, std::size_t rows)
      : all_(explanation), rows_(rows) {}

  std::string write() {
    line("{}", one_line(all_.path));
    const std::vector<bool> whole = told_whole();
    for (std::size_t i = 0; i < all_.devices.size(); ++i)
      if (whole[i]) write_device(all_.devices[i]);
    for (std::size_t i = 0; i < all_.devices.size(); ++i)
      if (!whole[i]) write_briefly(all_.devices[i]);
    if (!all_.top_frames.empty()) {
      line("\nWho asked for most in all (bytes of every allocation)");
      for (const auto& [name, bytes] : all_.top_call_sites)
        line("  {:>10}  {}", format_byte_size(bytes), name);
    }
    if (!all_.notes.empty()) {
      line("\nNotes");
      for (const std::string& note : all_.notes) line("  {}", one_line(note));
    }
    return std::move(out_);
  }

 private:
  template <typename... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    out_ += fmt::format(format, std::forward<Arguments>(arguments)...);
    out_ += '\n';
  }

  // The devices that need most, where there are many.
  std::vector<bool> told_whole() const {
    constexpr std::size_t kMost = 8;
    std::vector<std::size_t> order(all_.devices.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return all_.devices[a].live_peak.bytes > all_.devices[b].live_peak.bytes;
    });
    std::vector<bool> whole(all_.devices.size());
    for (std::size_t i = 0; i < std::min(kMost, order.size()); ++i) whole[order[i]] = true;
    return whole;
  }

  void write_briefly(const DeviceExplanation& device) {
    line("\nDevice {} ({}): {}; --device {} tells more. {}", device.device,
         one_line(device.name), events(device), device.device,
         device.verdict.sentences.empty() ? "" : device.verdict.sentences.front());
  }

  void write_device(const DeviceExplanation& device) {
    timed_ = device.has_times;
    line("\nDevice {} ({}): {}{}", device.device, one_line(device.name), events(device),
         timed_ ? " in " + time(static_cast<std::int64_t>(device.duration_us)) : ", without times");
    write_verdict(device.verdict);
    for (const std::string& warning : device.warnings) line("  note: {}", one_line(warning));
    if (device.has_history) {
      write_peaks(device);
    } else {
      line("\nLive when the snapshot was taken: {} ({} bytes)",
           format_byte_size(device.live_peak.bytes), grouped(device.live_peak.bytes));
      if (device.reserved_known)
        line("Reserved then: {}", format_byte_size(device.reserved_peak_bytes));
    }
    for (const OutOfMemoryReport& failure : device.failures) write_failure(failure);
    if (device.failure_count > device.failures.size())
      line("\n... and {} more failures", device.failure_count - device.failures.size());
    write_sleeps(device.sleeps);
    write_live(device.at_peak, device.has_history ? "at the peak" : "then");
    write_memory(device);
    if (device.has_history) write_growth(device.growth);
  }

  // "9 events (6 allocations and frees)": the others are requests to free, which no replay counts.
  static std::string events(const DeviceExplanation& device) {
    const std::string all = grouped(device.events) + " events";
    if (device.events == device.replayed_events) return all;
    return fmt::format("{} ({} allocations and frees)", all, grouped(device.replayed_events));
  }

  void write_peaks(const DeviceExplanation& device) {
    line("\nLive peak: {} ({} bytes{}){}, at event {}", format_byte_size(device.live_peak.bytes),
         grouped(device.live_peak.bytes),
         device.failures.empty() ? "" : ", without the failed request",
         after(device.live_peak.time_us), grouped(device.live_peak.events));
    if (device.early_blocks > 0)
      line("  of blocks that the recording saw allocated: {}; {} blocks are older",
           format_byte_size(device.traced_peak_bytes), grouped(device.early_blocks));
    if (device.reserved_known)
      line("Reserved then: {}. Reserved peak: {}{}",
           format_byte_size(device.reserved_at_peak_bytes),
           format_byte_size(device.reserved_peak_bytes), after(device.reserved_peak_us));
  }

  void write_verdict(const Verdict& verdict) {
    line("");
    for (const std::string& sentence : verdict.sentences) line("  {}", sentence);
    for (const std::string& sentence : verdict.cannot_tell) line("  {}", sentence);
    if (verdict.changes.empty()) return;
    line("\n  How:");
    for (const Change& change : verdict.changes)
      line("    {}: {}. Measured by {}.", change.what, change.how, change.measured);
  }

  void write_categories(const LiveSet& live) {
    TextTable table({"by category", "bytes", "share", "blocks", "largest", "certain", "likely",
                     "guess"});
    for (const CategoryGroup& group : live.by_category)
      table.add({group.name, format_byte_size(group.bytes), format_share(group.bytes, live.bytes),
                 grouped(group.blocks), format_byte_size(group.largest_bytes),
                 format_share(group.confidence_bytes[0], group.bytes),
                 format_share(group.confidence_bytes[1], group.bytes),
                 format_share(group.confidence_bytes[2], group.bytes)});
    out_ += '\n' + table.format();
  }

  void write_groups(const char* title, const std::vector<LiveGroup>& groups, std::uint64_t all) {
    if (groups.empty()) return;
    TextTable table({title, "bytes", "share", "blocks", "largest"});
    for (std::size_t i = 0; i < groups.size() && i < rows_; ++i)
      table.add({groups[i].name, format_byte_size(groups[i].bytes),
                 format_share(groups[i].bytes, all), grouped(groups[i].blocks),
                 format_byte_size(groups[i].largest_bytes)});
    if (groups.size() > rows_) {
      std::uint64_t bytes = 0;
      std::uint64_t blocks = 0;
      for (std::size_t i = rows_; i < groups.size(); ++i) {
        bytes += groups[i].bytes;
        blocks += groups[i].blocks;
      }
      table.add({fmt::format("{} more", groups.size() - rows_), format_byte_size(bytes),
                 format_share(bytes, all), grouped(blocks), ""});
    }
    out_ += '\n' + table.format();
  }

  void write_live(const LiveSet& live, const char* when) {
    line("\nWhat was live {}: {} in {} blocks", when, format_byte_size(live.bytes),
         grouped(live.blocks));
    if (live.blocks > 0) write_categories(live);
    write_groups("by call site", live.by_site, live.bytes);
    if (live.by_phase.size() > 1) write_groups("by phase of allocation", live.by_phase, live.bytes);
    write_groups("by size", live.by_size, live.bytes);
    write_groups("by age", live.by_age, live.bytes);
  }

  void write_memory(const DeviceExplanation& device) {
    if (device.memory.empty()) return;
    line("\nReserved against requested, and where the difference lies");
    std::vector<std::string> header = {"cause"};
    for (const MemoryAt& at : device.memory) header.push_back("at the " + at.moment);
    TextTable table(std::move(header));
    const auto row = [&](const char* name, auto&& value) {
      std::vector<std::string> cells = {name};
      for (const MemoryAt& at : device.memory)
        cells.push_back(format_byte_size(value(at.fragmentation)));
      table.add(std::move(cells));
    };
    using F = Fragmentation;
    row("reserved", [](const F& f) { return f.reserved_bytes; });
    row("requested by blocks in use", [](const F& f) { return f.requested_bytes; });
    row("  of these waiting for streams", [](const F& f) { return f.waiting_bytes; });
    row("rounding up of requests", [](const F& f) { return f.rounding_bytes; });
    row("rests too small to split off", [](const F& f) { return f.unsplit_bytes; });
    row("holes left by splits", [](const F& f) { return f.hole_bytes; });
    row("segments held by one block", [](const F& f) { return f.held_bytes; });
    row("segments wholly free (cached)", [](const F& f) { return f.cached_bytes; });
    row("stranded on other streams", [](const F& f) { return f.stranded_bytes; });
    row("in other pools", [](const F& f) { return f.other_pools_bytes; });
    row("largest free piece", [](const F& f) { return f.largest_free_bytes; });
    out_ += '\n' + table.format();
  }

  void write_sleeps(const std::vector<TagSleep>& sleeps) {
    if (sleeps.empty()) return;
    line("\nMemory that slept, and what that gave back to the driver (it is not live meanwhile)");
    TextTable table({"tag", "times", "at most", "contents lost", timed_ ? "asleep for" : "",
                     "at the live peak", "at the end"});
    for (const TagSleep& tag : sleeps)
      table.add({one_line(tag.tag), grouped(tag.times), format_byte_size(tag.most_bytes),
                 format_byte_size(tag.dropped_bytes), timed_ ? time(tag.asleep_us) : "",
                 format_byte_size(tag.at_peak_bytes), format_byte_size(tag.at_end_bytes)});
    out_ += table.format();
  }

  void write_failure(const OutOfMemoryReport& report) {
    line("\nOut of memory after {} events{}", grouped(report.events), after(report.time_us));
    for (const std::string& sentence : report.why) line("  {}", sentence);
    if (!report.stack.empty()) line("  The request came from:");
    for (std::size_t i = 0; i < report.stack.size() && i < 2 * rows_; ++i)
      line("    {}", report.stack[i]);
    if (report.stack.size() > 2 * rows_) line("    ... {} more", report.stack.size() - 2 * rows_);
    const Fragmentation& now = report.fragmentation;
    if (now.overhead_bytes() > 0)
      line(
          "  reserved and not requested: rounding {}, unsplit {}, holes {}, held by one block {}, "
          "cached {}, other streams {}, other pools {}",
          format_byte_size(now.rounding_bytes), format_byte_size(now.unsplit_bytes),
          format_byte_size(now.hole_bytes), format_byte_size(now.held_bytes),
          format_byte_size(now.cached_bytes), format_byte_size(now.stranded_bytes),
          format_byte_size(now.other_pools_bytes));
    if (report.live.blocks > 0) {
      line("  What was live then: {} in {} blocks", format_byte_size(report.live.bytes),
           grouped(report.live.blocks));
      write_categories(report.live);
      write_groups("by call site", report.live.by_site, report.live.bytes);
    }
    if (!report.remedies.empty()) line("  What would have let it pass:");
    for (const bool helps : {true, false})
      for (const Remedy& remedy : report.remedies)
        if (remedy.helps == helps)
          line("    {} {}: {}", helps ? "+" : "-", remedy.name, remedy.detail);
  }

  void write_growth(const Growth& growth) {
    if (growth.found_by.empty()) {
      line("\nLeaks: no iterations were found, so growth cannot be judged");
      return;
    }
    line("\nLeaks: {} iterations, found by {}", growth.iterations, growth.found_by);
    if (growth.iterations < Growth::kFewest) {
      line("  growth is judged from {} iterations on", Growth::kFewest);
      return;
    }
    if (growth.suspects.empty()) {
      line("  no call site grows from iteration to iteration");
      return;
    }
    TextTable table({"suspected call site", "from", "to", "blocks", "per iteration"});
    for (std::size_t i = 0; i < growth.suspects.size() && i < rows_; ++i) {
      const GrowingSite& site = growth.suspects[i];
      table.add({site.name, format_byte_size(site.first_bytes), format_byte_size(site.last_bytes),
                 fmt::format("{} to {}", site.first_blocks, site.last_blocks),
                 format_byte_size(static_cast<std::uint64_t>(site.bytes_per_iteration))});
    }
    out_ += table.format();
  }

  // ", 1.2 s after the recording began"; nothing where there are no times.
  std::string after(std::int64_t us) const {
    if (!timed_) return "";
    return us == 0 ? ", as the recording began"
                   : fmt::format(", {} after the recording began", time(us));
  }

  const Explanation& all_;
  const std::size_t rows_;
  bool timed_ = true;
  std::string out_;
};

}  // namespace

std::string explanation_text(const Explanation& explanation, std::size_t rows) {
  return ExplanationText(explanation, rows).write();
}

}  // namespace tenon
