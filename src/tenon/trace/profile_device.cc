#include "tenon/trace/profile_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/trace/profile.h"
#include "tenon/trace/trace_builder.h"

namespace tenon {
namespace {

constexpr std::int64_t kMaxDevice = 1023;
constexpr double kLongestUs = 9007199254740992.0;  // 2^53

// The call sites of a profile's events of memory: what was running on their threads. Spans of one
// thread lie inside each other or apart.
class RunningSpans {
 public:
  explicit RunningSpans(ProfileEvents& events) : events_(events) {
    const auto outer_first = [](const ProfileSpan& a, const ProfileSpan& b) {
      if (a.thread != b.thread) return a.thread < b.thread;
      if (a.begin_us != b.begin_us) return a.begin_us < b.begin_us;
      return a.end_us > b.end_us;
    };
    std::stable_sort(events.spans.begin(), events.spans.end(), outer_first);
  }

  // By event.
  std::vector<std::uint32_t> sites() {
    std::vector<std::uint32_t> order(events_.memory.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const ProfileMemory& first = events_.memory[a];
      const ProfileMemory& second = events_.memory[b];
      if (first.thread != second.thread) return first.thread < second.thread;
      return first.time_us < second.time_us;
    });
    std::vector<std::uint32_t> found(events_.memory.size());
    for (const std::uint32_t event : order) found[event] = site(events_.memory[event]);
    return found;
  }

 private:
  std::uint32_t site(const ProfileMemory& event) {
    const std::vector<ProfileSpan>& spans = events_.spans;
    if (!running_.empty() && spans[running_.front()].thread != event.thread) running_.clear();
    for (; next_ < spans.size() && spans[next_].thread <= event.thread; ++next_) {
      const ProfileSpan& span = spans[next_];
      if (span.thread == event.thread) {
        if (span.begin_us > event.time_us) break;
        end_before(span.begin_us);
        if (!span.phase && span.end_us >= event.time_us) running_.push_back(next_);
      }
    }
    end_before(event.time_us);
    frames_.clear();
    for (std::size_t i = running_.size(); i-- > 0 && frames_.size() < kMostFrames;)
      frames_.push_back(spans[running_[i]].what);
    return events_.sites.add_site({events_.sites.add_stack(frames_), 0, event.thread + 1});
  }
  void end_before(double time_us) {
    while (!running_.empty() && events_.spans[running_.back()].end_us < time_us)
      running_.pop_back();
  }

  static constexpr std::size_t kMostFrames = 1024;
  ProfileEvents& events_;
  std::size_t next_ = 0;
  std::vector<std::size_t> running_;    // spans, the outermost first
  std::vector<std::uint32_t> frames_;  // scratch
};

// One device's events.
class ProfileDevice {
 public:
  ProfileDevice(const std::string& path, std::string name, std::uint32_t number)
      : path_(path), number_(number), builder_(std::move(name), TraceBuilder::Keys::kAddresses) {}

  void take(const ProfileMemory& event, std::uint32_t site) {
    if (!begun_) first_us_ = event.time_us;
    const std::int64_t time_us = relative(event.time_us);
    most_reserved_ = std::max(most_reserved_, event.reserved.value_or(0));
    if (event.failed) {
      TraceMark mark;
      mark.kind = MarkKind::kOutOfMemory;
      mark.time_us = time_us;
      mark.size_bytes = static_cast<std::uint64_t>(std::abs(event.bytes));
      mark.site = site;
      builder_.mark(mark);
      ++failed_;
    } else if (event.bytes > 0) {
      allocate(event, time_us, site);
    } else {
      release(event, time_us, site);
    }
    if (!begun_ && event.allocated && !event.failed)
      before_ = static_cast<std::int64_t>(*event.allocated) - event.bytes;
    begun_ = true;
    if (!event.failed) count(event);
  }

  void phase(const ProfileSpan& span) {
    TraceMark mark;
    mark.text = span.what;
    mark.kind = MarkKind::kPhaseBegin;
    mark.time_us = relative(span.begin_us);
    builder_.mark_by_time(mark);
    mark.kind = MarkKind::kPhaseEnd;
    mark.time_us = relative(span.end_us);
    builder_.mark_by_time(mark);
  }

  Trace finish(std::uint32_t unseen_site, bool host) {
    const std::int64_t unseen = before_.value_or(0) - static_cast<std::int64_t>(early_bytes_);
    if (unseen > 0 && !builder_.knows(0))
      check(builder_.live_from_start(0, static_cast<std::uint64_t>(unseen), 0, unseen_site));
    warn(std::max<std::int64_t>(unseen, 0), host);
    Trace trace = builder_.finish();
    trace.device = number_;
    trace.most_reserved_bytes = most_reserved_;
    return trace;
  }

 private:
  std::int64_t relative(double time_us) const {
    const double since = std::floor(time_us - first_us_);
    if (!(std::abs(since) < kLongestUs))
      throw ParseError(path_, 0, 0, "an event's time is not one that a clock has");
    return static_cast<std::int64_t>(since);
  }
  void allocate(const ProfileMemory& event, std::int64_t time_us, std::uint32_t site) {
    const auto size = static_cast<std::uint64_t>(event.bytes);
    TraceFault fault = builder_.alloc(event.address, time_us, size, 0, site);
    if (fault == TraceFault::kLiveAlready) {  // it was freed unseen
      ++mended_;
      check(builder_.free(TraceOp::kFreeCompleted, event.address, time_us, site));
      fault = builder_.alloc(event.address, time_us, size, 0, site);
    }
    check(fault);
  }
  void release(const ProfileMemory& event, std::int64_t time_us, std::uint32_t site) {
    TraceFault fault = builder_.free(TraceOp::kFreeCompleted, event.address, time_us, site);
    if (fault == TraceFault::kUnknown) {
      const std::uint64_t size = 0 - static_cast<std::uint64_t>(event.bytes);
      ++early_;
      early_bytes_ += size;
      check(builder_.live_from_start(event.address, size, 0));
      fault = builder_.free(TraceOp::kFreeCompleted, event.address, time_us, site);
    }
    if (fault == TraceFault::kFreedAlready) {
      ++mended_;
      return;
    }
    check(fault);
  }
  void check(TraceFault fault) const {
    if (fault == TraceFault::kTooLarge)
      throw ParseError(path_, 0, 0,
                       fmt::format("an event of memory exceeds the largest request, {}",
                                   format_byte_size(kMaxRequestBytes)));
    if (fault != TraceFault::kNone)
      throw ParseError(path_, 0, 0, "more live bytes or blocks than a trace can have");
  }
  // Whether the allocator's own count goes with the events.
  void count(const ProfileMemory& event) {
    sum_ += event.bytes;
    if (!event.allocated || !before_) return;
    const std::int64_t counted = static_cast<std::int64_t>(*event.allocated) - *before_;
    drift_ = std::max(drift_, std::abs(counted - sum_));
  }
  void warn(std::int64_t unseen, bool host) {
    if (early_ > 0)
      builder_.warn(fmt::format("{}: {} blocks were allocated before the profile began", path_,
                                early_));
    if (unseen > 0)
      builder_.warn(fmt::format("{}: {} were allocated before the profile and not freed in it: "
                                "they are one block here",
                                path_, format_byte_size(static_cast<std::uint64_t>(unseen))));
    if (failed_ > 0)
      builder_.warn(fmt::format("{}: PyTorch ran out of memory {}", path_,
                                failed_ == 1 ? "once" : fmt::format("{} times", failed_)));
    if (mended_ > 0)
      builder_.warn(
          fmt::format("{}: {} events contradict earlier ones and were mended", path_, mended_));
    if (drift_ > 0)
      builder_.warn(fmt::format(
          "{}: PyTorch counted up to {} more or less than the events tell: threads that were "
          "not profiled, or lost events",
          path_, format_byte_size(static_cast<std::uint64_t>(drift_))));
    if (host)
      builder_.warn(path_ + ": a profile of host memory, no GPU has events: replays and advice are "
                            "for a card with these requests");
    else
      builder_.warn(path_ + ": a profile tells the sizes of PyTorch's blocks, up to 1 MiB more "
                            "than was asked for, and no streams: replays are approximate");
    if (most_reserved_ > 0)
      builder_.warn(fmt::format("{}: PyTorch held {} at most; what it held from before the profile "
                                "and did not use is in no replay",
                                path_, format_byte_size(most_reserved_)));
  }

  const std::string& path_;
  const std::uint32_t number_;
  TraceBuilder builder_;
  bool begun_ = false;
  double first_us_ = 0;
  std::optional<std::int64_t> before_;  // bytes allocated before the first event
  std::int64_t sum_ = 0;                // of the events so far
  std::int64_t drift_ = 0;
  std::uint64_t early_ = 0;  // blocks from before, freed in the profile
  std::uint64_t early_bytes_ = 0;
  std::uint64_t mended_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t most_reserved_ = 0;
};

}  // namespace

Snapshot build_profile(ProfileEvents events, const std::string& path) {
  const std::vector<std::uint32_t> sites = RunningSpans(events).sites();
  const std::vector<ProfileMemory>& memory = events.memory;
  const bool on_host = std::all_of(memory.begin(), memory.end(), [](const ProfileMemory& each) {
    return each.device_type == 0;
  });
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < memory.size(); ++i)
    if (on_host || memory[i].device_type != 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return memory[a].time_us < memory[b].time_us;
  });

  std::map<std::int64_t, std::unique_ptr<ProfileDevice>> devices;
  for (const std::uint32_t event : order) {
    const std::int64_t number = std::max<std::int64_t>(0, memory[event].device_id);
    if (number > kMaxDevice)
      throw ParseError(path, 0, 0, fmt::format("an event of memory is of device {}", number));
    std::unique_ptr<ProfileDevice>& device = devices[number];
    if (device == nullptr)
      device = std::make_unique<ProfileDevice>(path, fmt::format("{}:{}", trace_name(path), number),
                                               static_cast<std::uint32_t>(number));
    device->take(memory[event], sites[event]);
  }

  Snapshot snapshot;
  const std::uint32_t unseen = events.sites.add_site({0, events.sites.add_text(kUnseenBlocks), 0});
  for (const auto& [number, device] : devices) {
    for (const ProfileSpan& span : events.spans)
      if (span.phase) device->phase(span);
    snapshot.traces.push_back(device->finish(unseen, on_host));
  }
  if (order.size() < memory.size())
    snapshot.notes.push_back(
        fmt::format("{} events of host memory, left aside", memory.size() - order.size()));
  if (snapshot.traces.size() == 1) snapshot.traces[0].name = trace_name(path);
  snapshot.sites = std::make_shared<const SiteTable>(std::move(events.sites));
  for (Trace& trace : snapshot.traces) trace.sites = snapshot.sites;
  return snapshot;
}

}  // namespace tenon
