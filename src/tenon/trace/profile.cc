#include "tenon/trace/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/trace/foreign.h"
#include "tenon/trace/json_reader.h"
#include "tenon/trace/profile_device.h"

namespace tenon {
namespace {

constexpr std::string_view kRecordInstead =
    "record with torch.profiler.profile(profile_memory=True) and export_chrome_trace, or with "
    "torch.cuda.memory._record_memory_history() and torch.cuda.memory._dump_snapshot, which tells "
    "more; of a program without PyTorch, write CSV with the columns time_us,op,id,size,stream";

enum class Content : std::uint8_t { kUnknown, kProfile, kSnapshot };

enum class ProfileField : std::uint8_t {
  kOther, kName, kCategory, kPhase, kTime, kDuration, kProcess, kThread, kArguments,
  kBytes, kAddress, kDeviceType, kDeviceId, kAllocated, kReserved
};

ProfileField field_named(std::string_view key) {
  static constexpr std::pair<std::string_view, ProfileField> kFields[] = {
      {"name", ProfileField::kName},    {"cat", ProfileField::kCategory},
      {"ph", ProfileField::kPhase},     {"ts", ProfileField::kTime},
      {"dur", ProfileField::kDuration}, {"pid", ProfileField::kProcess},
      {"tid", ProfileField::kThread},   {"args", ProfileField::kArguments}};
  for (const auto& [name, field] : kFields)
    if (name == key) return field;
  return ProfileField::kOther;
}

ProfileField argument_named(std::string_view key) {
  static constexpr std::pair<std::string_view, ProfileField> kArguments[] = {
      {"Bytes", ProfileField::kBytes},           {"Addr", ProfileField::kAddress},
      {"Device Type", ProfileField::kDeviceType}, {"Device Id", ProfileField::kDeviceId},
      {"Total Allocated", ProfileField::kAllocated}, {"Total Reserved", ProfileField::kReserved}};
  for (const auto& [name, field] : kArguments)
    if (name == key) return field;
  return ProfileField::kOther;
}

// One object of traceEvents.
struct ProfileEvent {
  std::string name;
  std::string category;
  std::string phase;
  double time_us = 0;
  double duration_us = 0;
  std::int64_t process = 0;
  std::int64_t thread = 0;
  std::optional<std::int64_t> bytes;
  std::optional<std::uint64_t> address;
  std::int64_t device_type = 0;
  std::int64_t device_id = 0;
  std::optional<std::uint64_t> allocated;
  std::optional<std::uint64_t> reserved;
};

class ProfileReader final : public JsonReader {
 public:
  using JsonReader::JsonReader;

  Content content() const { return content_; }
  ProfileEvents take_events() { return std::move(events_); }
  std::uint64_t without_address() const { return without_address_; }

  bool start_object(std::size_t /*size*/) override {
    ++depth_;
    if (depth_ == event_depth_) event_ = {};
    return true;
  }
  bool end_object() override {
    if (depth_ == event_depth_) take(event_);
    --depth_;
    return true;
  }
  bool start_array(std::size_t /*size*/) override {
    ++depth_;
    if (depth_ == 1) event_depth_ = 2;  // a list of events, as profiles of PyTorch 1 are
    if (depth_ == 2 && event_depth_ == 2)
      fail("is the timeline of export_memory_timeline, which tells neither addresses nor streams: "
           "give the profile itself, of export_chrome_trace");
    if (depth_ == 2 && root_key_ == "traceEvents") {
      content_ = Content::kProfile;
      event_depth_ = 3;
    }
    return true;
  }
  bool end_array() override {
    if (depth_ + 1 == event_depth_) event_depth_ = 0;
    --depth_;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == event_depth_) {
      field_ = field_named(name);
      if (field_ != ProfileField::kOther) content_ = Content::kProfile;
    } else if (depth_ == event_depth_ + 1 && event_depth_ != 0) {
      argument_ = field_ == ProfileField::kArguments ? argument_named(name) : ProfileField::kOther;
    }
    if (depth_ == 1) {
      root_key_ = name.substr(0, kLongestKey);
      if (const std::string what = foreign_json(root_key_); !what.empty()) fail(what);
    }
    const bool in_event = event_depth_ != 0 && content_ == Content::kProfile;
    if (in_event || depth_ > 3 || (name != "device_traces" && name != "total_size" &&
                                   (name != "segments" || depth_ != 1)))
      return true;
    content_ = Content::kSnapshot;
    return false;
  }
  bool number_integer(std::int64_t value) override {
    set_integer(value, static_cast<std::uint64_t>(value));
    return true;
  }
  bool number_unsigned(std::uint64_t value) override {
    set_integer(static_cast<std::int64_t>(value), value);
    return true;
  }
  bool number_float(double value, const std::string& /*digits*/) override {
    if (depth_ != event_depth_) return true;
    if (field_ == ProfileField::kTime) event_.time_us = value;
    if (field_ == ProfileField::kDuration) event_.duration_us = value;
    return true;
  }
  bool string(std::string& value) override {
    if (depth_ != event_depth_) return true;
    switch (field_) {
      case ProfileField::kName: event_.name = std::move(value); break;
      case ProfileField::kCategory: event_.category = std::move(value); break;
      case ProfileField::kPhase: event_.phase = std::move(value); break;
      case ProfileField::kProcess: event_.process = number_of(value); break;
      case ProfileField::kThread: event_.thread = number_of(value); break;
      default: break;
    }
    return true;
  }

  [[noreturn]] void fail(const std::string& reason) const { throw ParseError(path_, 0, 0, reason); }

 private:
  static constexpr std::size_t kLongestKey = 32;

  void set_integer(std::int64_t value, std::uint64_t bits) {
    if (depth_ == event_depth_) {
      switch (field_) {
        case ProfileField::kTime: event_.time_us = static_cast<double>(value); break;
        case ProfileField::kDuration: event_.duration_us = static_cast<double>(value); break;
        case ProfileField::kProcess: event_.process = value; break;
        case ProfileField::kThread: event_.thread = value; break;
        default: break;
      }
    } else if (depth_ == event_depth_ + 1 && field_ == ProfileField::kArguments) {
      switch (argument_) {
        case ProfileField::kBytes: event_.bytes = value; break;
        case ProfileField::kAddress: event_.address = bits; break;
        case ProfileField::kDeviceType: event_.device_type = value; break;
        case ProfileField::kDeviceId: event_.device_id = value; break;
        case ProfileField::kAllocated: event_.allocated = bits; break;
        case ProfileField::kReserved: event_.reserved = bits; break;
        default: break;
      }
    }
  }
  // Processes and threads may be named by text: "Spans", "stream 7".
  std::int64_t number_of(const std::string& name) {
    const auto [found, fresh] =
        named_.try_emplace(name, -1 - static_cast<std::int64_t>(named_.size()));
    return found->second;
  }
  std::uint32_t thread_of(const ProfileEvent& event) {
    const auto [found, fresh] = threads_.try_emplace({event.process, event.thread},
                                                     static_cast<std::uint32_t>(threads_.size()));
    return found->second;
  }

  void take(const ProfileEvent& event) {
    const bool failed = event.name == "[OutOfMemory]";
    if (event.name == "[memory]" || failed) {
      if (!event.bytes || *event.bytes == 0) return;
      if (!event.address && !failed) {
        ++without_address_;
        return;
      }
      events_.memory.push_back({event.time_us, *event.bytes, event.address.value_or(0),
                                event.allocated, event.reserved, thread_of(event),
                                event.device_type, event.device_id, failed});
    } else if (event.phase == "X") {
      take_span(event);
    }
  }
  void take_span(const ProfileEvent& event) {
    const bool phase = event.category == "user_annotation";
    std::uint32_t what = 0;
    if (phase) {
      what = events_.sites.add_text(clipped(event.name));
    } else if (event.category == "cpu_op" || event.category == "Operator") {
      what = events_.sites.add_frame(clipped(event.name), "", 0);
    } else if (event.category == "python_function") {
      what = python_frame(event.name);
    }
    if (what != 0)
      events_.spans.push_back({event.time_us, event.time_us + event.duration_us,
                               thread_of(event), what, phase});
  }
  // "train.py(12): forward". Built-in functions and modules ("nn.Module: Linear_0") are none: the
  // lines of Python that call them are there too.
  std::uint32_t python_frame(std::string_view name) {
    const std::size_t end = name.find("): ");
    const std::size_t begin = end == name.npos ? name.npos : name.rfind('(', end);
    if (begin == name.npos || begin == 0) return 0;
    std::uint32_t line = 0;
    const auto [stop, error] = std::from_chars(name.data() + begin + 1, name.data() + end, line);
    if (error != std::errc() || stop != name.data() + end) return 0;
    return events_.sites.add_frame(clipped(name.substr(end + 3)), clipped(name.substr(0, begin)),
                                   line);
  }
  static std::string_view clipped(std::string_view text) {
    constexpr std::size_t kMaxText = 4096;
    return text.substr(0, kMaxText);
  }

  Content content_ = Content::kUnknown;
  std::size_t depth_ = 0;
  std::size_t event_depth_ = 0;  // of the objects of traceEvents; 0: outside
  std::string root_key_;
  ProfileField field_ = ProfileField::kOther;
  ProfileField argument_ = ProfileField::kOther;
  ProfileEvent event_;
  ProfileEvents events_;
  std::map<std::string, std::int64_t> named_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> threads_;
  std::uint64_t without_address_ = 0;
};

}  // namespace

std::optional<Snapshot> parse_profile(std::string_view bytes, const std::string& path,
                                      const ReadHooks& hooks) {
  ProfileReader reader(path);
  read_json(bytes, reader, hooks);
  if (reader.content() == Content::kSnapshot) return std::nullopt;
  if (reader.content() == Content::kUnknown)
    reader.fail("is JSON, and neither a profile (traceEvents) nor a memory snapshot (segments, "
                "device_traces)");
  ProfileEvents events = reader.take_events();
  if (std::all_of(events.memory.begin(), events.memory.end(),
                  [](const ProfileMemory& each) { return each.failed; }))
    reader.fail(fmt::format("is a profile {}: {}",
                            reader.without_address() == 0
                                ? std::string("without events of memory")
                                : fmt::format("whose {} events of memory have no addresses, as "
                                              "PyTorch before 1.12 wrote them",
                                              reader.without_address()),
                            kRecordInstead));
  return build_profile(std::move(events), path);
}

}  // namespace tenon
