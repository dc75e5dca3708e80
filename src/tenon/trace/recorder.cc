#include "tenon/trace/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>

#include "tenon/base/code_place.h"
#include "tenon/trace/recording_place.h"
#include "tenon/trace/trace_builder.h"
#include "tenon/trace/write.h"

namespace tenon {
namespace {

constexpr int kOwnFrames = 3;  // of the recorder and the list of observers, at least

// "    at name (file:line)" or "    at name + 0x12 (program)", as describe_code writes them.
std::uint32_t frame_of(std::string_view line, SiteTable& sites) {
  constexpr std::string_view kAt = "    at ";
  if (line.starts_with(kAt)) line.remove_prefix(kAt.size());
  std::string_view file;
  std::uint32_t number = 0;
  if (const std::size_t open = line.rfind(" ("); open != std::string_view::npos &&
                                                 line.ends_with(')')) {
    file = line.substr(open + 2, line.size() - open - 3);
    line = line.substr(0, open);
    if (const std::size_t colon = file.rfind(':'); colon != std::string_view::npos) {
      for (const char digit : file.substr(colon + 1))
        number = digit >= '0' && digit <= '9' && number < 100'000'000
                     ? number * 10 + static_cast<std::uint32_t>(digit - '0')
                     : number;
      file = file.substr(0, colon);
    }
  }
  if (const std::size_t plus = line.rfind(" + 0x"); plus != std::string_view::npos)
    line = line.substr(0, plus);
  if (const std::size_t clone = line.find(" [clone "); clone != std::string_view::npos)
    line = line.substr(0, clone);  // the compiler's copy of the function
  return sites.add_frame(line, file, number);
}

// Frames of the machinery that every allocation goes through say nothing.
bool is_machinery(const SiteTable& sites, std::uint32_t frame) {
  const std::string_view name = sites.text(sites.frame(frame).function);
  if (name.find("tenon::") == std::string_view::npos) return false;
  for (const char* part : {"Allocator::", "ObserverList::", "Recorder::", "Adaptor", "StreamHeap",
                           "StreamFront::", "FastPath<", "StorageImpl", "CallStack::"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

}  // namespace

std::uint32_t recording_thread_number() {
  static std::atomic<std::uint32_t> threads{0};
  thread_local const std::uint32_t number = ++threads;
  return number;
}

// Makes traces of events; stacks get their names here.
class Recorder::Maker {
 public:
  explicit Maker(const Recorder& of) : of_(of), sites_(std::make_shared<SiteTable>()) {
    stacks_.resize(of.stacks_.size());
    tags_.resize(of.tags_.size());
    for (const Device device : of.devices_) {
      const std::string name = of.devices_.size() == 1
                                   ? of.name_
                                   : fmt::format("{}:{}", of.name_, to_string(device));
      parts_.emplace_back(name);
    }
    for (const auto& [device, asleep] : of.asleep_before_) parts_[device].addresses_asleep = asleep;
    for (const auto& [block, event] : of.before_)
      if (part(event).addresses_asleep.contains(event.address))
        part(event).asleep.emplace(event.address, event);
      else if (part(event).builder.live_from_start(event.address, event.size_bytes, event.stream,
                                              site(event)) != TraceFault::kNone)
        ++part(event).lost;
  }

  void add(const Event& event) {
    const std::int64_t time_us = event.time_ns / 1000;
    switch (event.kind) {
      case Kind::kAlloc: allocated(event, time_us); break;
      case Kind::kFree: freed(event, time_us); break;
      case Kind::kFailure: {
        TraceMark mark;
        mark.kind = MarkKind::kOutOfMemory;
        mark.time_us = time_us;
        mark.size_bytes = event.size_bytes;
        mark.stream = event.stream;
        mark.site = site(event);
        part(event).builder.mark(mark);
        break;
      }
      case Kind::kToHost:
      case Kind::kDropped: fell_asleep(event, time_us); break;
      case Kind::kWoke: woke(event, time_us); break;
      case Kind::kGone: part(event).addresses_asleep.remove(event.address, end_of(event)); break;
    }
  }

  std::vector<Trace> finish() {
    std::vector<Trace> traces;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      Part& one = parts_[i];
      if (one.lost > 0)
        one.builder.warn(fmt::format("{}: {} events were left out", of_.name_, one.lost));
      if (of_.retired_ > 0)
        one.builder.warn(fmt::format("{}: the recorder kept the newest {} events; {} are older",
                                     of_.name_, of_.ring_.size(), of_.retired_));
      traces.push_back(one.builder.finish(sites_));
      traces.back().device = static_cast<std::uint32_t>(of_.devices_[i].index);
      traces.back().device_name = to_string(of_.devices_[i]);
    }
    return traces;
  }

 private:
  struct Part {
    explicit Part(const std::string& name) : builder(name, TraceBuilder::Keys::kAddresses) {}
    TraceBuilder builder;
    std::unordered_map<std::uint64_t, std::uint32_t> late_frees;  // seen as reuse, not yet as free
    std::uint64_t lost = 0;  // events that fitted nothing
    AddressSet addresses_asleep;
    std::map<std::uint64_t, Event> asleep;  // blocks, by address
    std::map<std::uint64_t, Event> awake;   // the same, where anything sleeps
  };
  Part& part(const Event& event) { return parts_[event.device]; }
  static std::uint64_t end_of(const Event& event) { return event.address + event.size_bytes; }

  // Blocks that lie in what sleeps now, in part or wholly before.
  void fell_asleep(const Event& event, std::int64_t time_us) {
    Part& own = part(event);
    own.addresses_asleep.add(event.address, end_of(event));
    auto block = own.awake.upper_bound(event.address);
    if (block != own.awake.begin()) --block;
    while (block != own.awake.end() && block->first < end_of(event)) {
      if (!own.addresses_asleep.contains(block->first, end_of(block->second))) {
        ++block;
        continue;
      }
      own.builder.free(TraceOp::kFreeCompleted, block->first, time_us, site(event));
      own.asleep.insert(own.awake.extract(block++));
    }
    if (event.stream > 0)
      mark(event, time_us, event.kind == Kind::kToHost ? MarkKind::kSleepToHost
                                                       : MarkKind::kSleepDropped);
  }

  void woke(const Event& event, std::int64_t time_us) {
    Part& own = part(event);
    mark(event, time_us, MarkKind::kWake);
    own.addresses_asleep.remove(event.address, end_of(event));
    auto block = own.asleep.upper_bound(event.address);
    if (block != own.asleep.begin()) --block;
    while (block != own.asleep.end() && block->first < end_of(event)) {
      const Event of = block->second;
      if (end_of(of) <= event.address) {
        ++block;
        continue;
      }
      block = own.asleep.erase(block);
      allocated(of, time_us);
    }
  }

  void mark(const Event& event, std::int64_t time_us, MarkKind kind) {
    TraceMark mark;
    mark.kind = kind;
    mark.time_us = time_us;
    mark.address = event.address;
    mark.size_bytes = event.stream;
    mark.site = sites_->add_site({0, 0, event.thread});
    mark.text = tag(event.tag);
    part(event).builder.mark(mark);
  }

  void allocated(const Event& event, std::int64_t time_us) {
    Part& own = part(event);
    if (own.addresses_asleep.contains(event.address)) {
      own.asleep.insert_or_assign(event.address, event);
      return;
    }
    if (of_.anything_slept_) own.awake.insert_or_assign(event.address, event);
    const std::uint32_t from = site(event);
    TraceFault fault =
        own.builder.alloc(event.address, time_us, event.size_bytes, event.stream, from);
    if (fault == TraceFault::kLiveAlready) {
      own.builder.free(TraceOp::kFreeCompleted, event.address, time_us);
      ++own.late_frees[event.address];
      fault = own.builder.alloc(event.address, time_us, event.size_bytes, event.stream, from);
    }
    if (fault != TraceFault::kNone) ++own.lost;
  }

  void freed(const Event& event, std::int64_t time_us) {
    Part& own = part(event);
    if (own.asleep.erase(event.address) > 0) return;
    own.awake.erase(event.address);
    if (const auto late = own.late_frees.find(event.address); late != own.late_frees.end()) {
      if (--late->second == 0) own.late_frees.erase(late);
      return;
    }
    const std::uint32_t from = site(event);
    TraceFault fault =
        own.builder.free(TraceOp::kFreeCompleted, event.address, time_us, from);
    if (fault == TraceFault::kUnknown) {
      own.builder.live_from_start(event.address, event.size_bytes, event.stream);
      fault = own.builder.free(TraceOp::kFreeCompleted, event.address, time_us, from);
    }
    if (fault != TraceFault::kNone) ++own.lost;
  }

  std::uint32_t site(const Event& event) {
    return sites_->add_site({stack(event.stack), tag(event.tag), event.thread});
  }

  std::uint32_t tag(std::uint32_t number) {
    if (number == 0) return 0;
    if (tags_[number] == 0) {
      const Tag& own = of_.tags_[number];
      tags_[number] = sites_->add_text(
          own.phase == nullptr       ? std::string(own.call_site)
          : own.call_site == nullptr ? std::string(own.phase)
                                     : fmt::format("{}: {}", own.phase, own.call_site));
    }
    return tags_[number];
  }

  std::uint32_t stack(std::uint32_t number) {
    if (number == 0) return 0;
    if (stacks_[number] == 0) {
      std::vector<std::uint32_t> frames;
      const CallStack& own = *of_.stacks_[number];
      for (int i = 0; i < own.depth(); ++i)
        for (const std::uint32_t frame : frames_at(own.frame(i)))
          if (!frames.empty() || !is_machinery(*sites_, frame)) frames.push_back(frame);
      stacks_[number] = sites_->add_stack(frames);
    }
    return stacks_[number];
  }

  const std::vector<std::uint32_t>& frames_at(void* code) {
    const auto [known, fresh] = code_.try_emplace(code);
    if (!fresh) return known->second;
    const std::string text = describe_code(code);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      known->second.push_back(frame_of(std::string_view(text).substr(at, end - at), *sites_));
      at = end + 1;
    }
    return known->second;
  }

  const Recorder& of_;
  std::shared_ptr<SiteTable> sites_;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> stacks_;  // by the recorder's number; 0: not named yet
  std::vector<std::uint32_t> tags_;
  std::unordered_map<void*, std::vector<std::uint32_t>> code_;
};

Recorder::Recorder(std::string name, RecorderOptions options)
    : name_(std::move(name)),
      options_(std::move(options)),
      stacks_(1, nullptr),
      tags_(1),
      start_(std::chrono::steady_clock::now()) {}

void Recorder::on_memory_event(const MemoryEventInfo& info) {
  const bool failed = info.event == MemoryEvent::kAllocationFailed;
  const bool block = info.event == MemoryEvent::kAllocated ||
                     info.event == MemoryEvent::kRecycled || info.event == MemoryEvent::kFreed;
  if (!failed && (!block || info.data == nullptr)) return;  // memory between allocator and driver
  const bool freed = info.event == MemoryEvent::kFreed;
  Event event;
  event.address = reinterpret_cast<std::uintptr_t>(info.data);
  event.size_bytes = info.size_bytes;
  event.stream = info.stream.id;
  event.thread = recording_thread_number();
  event.kind = failed ? Kind::kFailure : freed ? Kind::kFree : Kind::kAlloc;
  const std::lock_guard lock(mutex_);
  event.device = device_number(info.stream.device);
  event.tag = tag_number(info.tag);
  if (!freed) event.stack = stack_number(info.size_bytes);
  // Under the lock, so that times rise in the order of events.
  event.time_ns = now_ns();
  keep(event);
  if (failed) dump_failure();
}

void Recorder::on_sleep(const SleepChange& change) {
  const std::lock_guard lock(mutex_);
  anything_slept_ = true;
  Event event;
  event.thread = recording_thread_number();
  event.device = device_number(change.device);
  event.tag = tag_number({sleep_tags_.insert(change.tag).first->c_str(), nullptr});
  event.time_ns = now_ns();
  static constexpr Kind kKinds[] = {Kind::kToHost, Kind::kDropped, Kind::kWoke, Kind::kGone};
  event.kind = kKinds[static_cast<std::size_t>(change.what)];
  for (const SleepChange::Piece& piece : change.pieces) {
    event.address = piece.base;
    event.size_bytes = piece.size_bytes;
    event.stream = piece.memory_bytes;
    keep(event);
  }
}

// The child may soon be another program, so it forgets the parent's events with its own first one.
void Recorder::after_fork(bool in_child) {
  if (in_child) {
    is_child_ = has_parents_ = true;
    dumped_ = false;
  }
  mutex_.unlock();
}

void Recorder::leave_to_parent() {
  if (!has_parents_) [[likely]] return;
  for (std::size_t i = 0; i < ring_.size(); ++i) retire(ring_[place_in_ring(i)]);
  ring_.clear();
  oldest_ = 0;
  retired_ = 0;
  has_parents_ = false;
}

std::int64_t Recorder::now_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              start_)
      .count();
}

void Recorder::keep(const Event& event) {
  leave_to_parent();
  if (options_.capacity_events == 0 || ring_.size() < options_.capacity_events) {
    ring_.push_back(event);
    return;
  }
  retire(ring_[oldest_]);
  ring_[oldest_] = event;
  oldest_ = oldest_ + 1 == ring_.size() ? 0 : oldest_ + 1;
}

// What the ring forgets still says what is live.
void Recorder::retire(const Event& event) {
  ++retired_;
  const Block block = {event.device, event.address};
  const std::uint64_t end = event.address + event.size_bytes;
  switch (event.kind) {
    case Kind::kAlloc: before_[block] = event; break;
    case Kind::kFree: before_.erase(block); break;
    case Kind::kFailure: break;
    case Kind::kToHost:
    case Kind::kDropped: asleep_before_[event.device].add(event.address, end); break;
    case Kind::kWoke:
    case Kind::kGone: asleep_before_[event.device].remove(event.address, end); break;
  }
}

std::uint32_t Recorder::stack_number(std::uint64_t size_bytes) {
  if (options_.stack_depth <= 0 || size_bytes < options_.stack_min_bytes) return 0;
  const auto [known, fresh] = stack_numbers_.try_emplace(
      CallStack::capture(options_.stack_depth, kOwnFrames),
      static_cast<std::uint32_t>(stacks_.size()));
  if (fresh) stacks_.push_back(&known->first);
  return known->second;
}

std::uint32_t Recorder::tag_number(const Tag& tag) {
  if (tag.phase == nullptr && tag.call_site == nullptr) return 0;
  const auto [known, fresh] = tag_numbers_.try_emplace({tag.phase, tag.call_site},
                                                       static_cast<std::uint32_t>(tags_.size()));
  if (fresh) tags_.push_back(tag);
  return known->second;
}

std::uint16_t Recorder::device_number(Device device) {
  const auto known = std::find(devices_.begin(), devices_.end(), device);
  if (known != devices_.end()) return static_cast<std::uint16_t>(known - devices_.begin());
  devices_.push_back(device);
  return static_cast<std::uint16_t>(devices_.size() - 1);
}

std::size_t Recorder::place_in_ring(std::size_t i) const {
  return oldest_ + i < ring_.size() ? oldest_ + i : oldest_ + i - ring_.size();
}

std::vector<Trace> Recorder::make() {
  leave_to_parent();
  Maker maker(*this);
  for (std::size_t i = 0; i < ring_.size(); ++i) maker.add(ring_[place_in_ring(i)]);
  return maker.finish();
}

// On the thread whose allocation fails. That the file cannot be written must not hide that.
void Recorder::dump_failure() {
  if (dumped_ || options_.out_of_memory_path.empty()) return;
  dumped_ = true;
  const std::string& asked = options_.out_of_memory_path;
  const std::string path = is_child_ ? file_of_child(asked) : with_number(asked);
  try {
    write_traces(make(), path);
    fmt::print(stderr, "tenon: out of memory; the recording is in {}\n", path);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tenon: out of memory; the recording is lost: {}\n", error.what());
  }
}

void Recorder::keep_no_failure() {
  const std::lock_guard lock(mutex_);
  options_.out_of_memory_path.clear();  // also of children
}

bool Recorder::is_empty() const {
  const std::lock_guard lock(mutex_);
  return has_parents_ || ring_.empty();
}

bool Recorder::is_child() const {
  const std::lock_guard lock(mutex_);
  return is_child_;
}

std::vector<Trace> Recorder::peek() {
  const std::lock_guard lock(mutex_);
  return make();
}

std::vector<Trace> Recorder::take_all() {
  const std::lock_guard lock(mutex_);
  std::vector<Trace> traces = make();
  ring_.clear();
  oldest_ = 0;
  before_.clear();
  asleep_before_.clear();
  sleep_tags_.clear();
  anything_slept_ = false;
  devices_.clear();
  stacks_.resize(1);
  stack_numbers_.clear();
  tags_.resize(1);
  tag_numbers_.clear();
  retired_ = 0;
  start_ = std::chrono::steady_clock::now();
  return traces;
}

Trace Recorder::take() {
  std::vector<Trace> traces = take_all();
  if (!traces.empty()) return std::move(traces[0]);
  Trace none;
  none.name = name_;
  return none;
}

}  // namespace tenon
