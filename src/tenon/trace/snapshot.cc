#include "tenon/trace/snapshot.h"

#include <fmt/format.h>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/trace/pickle.h"
#include "tenon/trace/trace_builder.h"

namespace tenon {
namespace {

// PyTorch's entries have about a dozen keys. The bound keeps a look-up short in a file that makes
// a million references to one giant dict.
constexpr std::size_t kMaxKeys = 64;

class SnapshotReader {
 public:
  SnapshotReader(std::string_view bytes, const std::string& path)
      : path_(path), document_(bytes, path), budget_(bytes.size()) {}

  Snapshot read() {
    if (!document_.root().is_dict())
      fail("holds no dict with segments and device_traces: write it with "
           "torch.cuda.memory._dump_snapshot");
    read_segments();
    const PickleValue* traces = document_.find(document_.root(), "device_traces");
    if (traces != nullptr && traces->is_sequence()) {
      const auto devices = document_.items(*traces);
      for (std::size_t device = 0; device < devices.size(); ++device)
        read_device(device, sequence(devices[device], "device_traces"));
    }
    if (snapshot_.traces.empty())
      fail("holds no recorded events: call torch.cuda.memory._record_memory_history() before the "
           "part of the program that matters, then dump the snapshot");
    if (snapshot_.traces.size() == 1) {
      snapshot_.traces[0].name = trace_name(path_);
    }
    return std::move(snapshot_);
  }

 private:
  struct LiveBlock {
    std::uint64_t device;
    std::uint64_t address;
    std::uint64_t size_bytes;
    std::uint64_t stream;
  };

  [[noreturn]] void fail(const std::string& reason) const {
    throw ParseError(path_, 0, 0, reason);
  }

  std::span<const PickleValue> sequence(const PickleValue& value, std::string_view what) {
    if (!value.is_sequence())
      fail(fmt::format("{} holds a {} where a list belongs", what, pickle_kind_name(value.kind())));
    const auto items = document_.items(value);
    // A list may be named many times by a few bytes each; honest files hold less than one item a
    // byte.
    if (items.size() > budget_) fail(fmt::format("{} repeats itself beyond the file's size", what));
    budget_ -= items.size();
    return items;
  }

  const PickleValue* find(const PickleValue& entry, std::string_view key,
                          std::string_view what) const {
    if (!entry.is_dict())
      fail(fmt::format("{} holds a {} where a dict belongs", what, pickle_kind_name(entry.kind())));
    if (document_.pairs(entry).size() > kMaxKeys)
      fail(fmt::format("{} holds a dict of more than {} keys", what, kMaxKeys));
    return document_.find(entry, key);
  }
  std::uint64_t number(const PickleValue& entry, std::string_view key,
                       std::string_view what) const {
    const PickleValue* value = find(entry, key, what);
    const auto found = value == nullptr ? std::nullopt : value->as_uint64();
    if (!found) fail(fmt::format("{}: \"{}\" is missing or no number from 0 to 2^64", what, key));
    return *found;
  }
  std::uint64_t number_or(const PickleValue& entry, std::string_view key, std::uint64_t otherwise,
                          std::string_view what) const {
    const PickleValue* value = find(entry, key, what);
    return value == nullptr ? otherwise : value->as_uint64().value_or(otherwise);
  }
  std::string text(const PickleValue& entry, std::string_view key, std::string_view what) const {
    const PickleValue* value = find(entry, key, what);
    const auto found = value == nullptr ? std::nullopt : value->as_string();
    if (!found || found->size() > 64)
      fail(fmt::format("{}: \"{}\" is missing or no short string", what, key));
    return std::string(*found);
  }

  void read_segments() {
    SnapshotFigures& figures = snapshot_.figures;
    const PickleValue* segments = document_.find(document_.root(), "segments");
    if (segments == nullptr) fail("holds no segments: it is no snapshot of torch.cuda.memory");
    for (const PickleValue& segment : sequence(*segments, "segments")) {
      ++figures.segments;
      figures.total_bytes += number(segment, "total_size", "a segment");
      figures.allocated_bytes += number(segment, "allocated_size", "a segment");
      const std::uint64_t device = number_or(segment, "device", 0, "a segment");
      const std::uint64_t stream = number_or(segment, "stream", 0, "a segment");
      std::uint64_t address = number_or(segment, "address", 0, "a segment");
      const PickleValue* blocks = find(segment, "blocks", "a segment");
      if (blocks == nullptr) fail("a segment: \"blocks\" is missing");
      for (const PickleValue& block : sequence(*blocks, "blocks")) {
        ++figures.blocks;
        const std::string state = text(block, "state", "a block");
        ++figures.states[state];
        const std::uint64_t size = number(block, "size", "a block");
        address = number_or(block, "address", address, "a block");
        if (state.starts_with("active"))
          live_.push_back(
              {device, address, number_or(block, "requested_size", size, "a block"), stream});
        address += size;  // older snapshots leave addresses out: blocks tile their segment
      }
    }
    const PickleValue* notes = document_.find(document_.root(), "external_annotations");
    if (notes != nullptr && notes->is_sequence())
      figures.external_annotations = document_.items(*notes).size();
  }

  void read_device(std::size_t device, std::span<const PickleValue> entries) {
    snapshot_.figures.trace_entries.push_back(entries.size());
    TraceBuilder builder(fmt::format("{}:{}", trace_name(path_), device));
    mended_ = early_ = ooms_ = 0;
    first_oom_.clear();
    first_us_.reset();
    for (const PickleValue& entry : entries) read_entry(entry, builder);
    if (builder.events() == 0) return;

    for (const LiveBlock& block : live_)
      if (block.device == device && !builder.knows(block.address)) {
        check(builder.live_from_start(block.address, block.size_bytes, block.stream));
        ++early_;
      }
    if (early_ > 0)
      builder.warn(
          fmt::format("{}: {} blocks were live before the recording began", path_, early_));
    if (ooms_ > 0)
      builder.warn(fmt::format("{}: PyTorch ran out of memory {} times, first {}", path_, ooms_,
                               first_oom_));
    if (mended_ > 0)
      builder.warn(fmt::format("{}: {} entries contradict earlier ones and were mended", path_,
                               mended_));
    if (builder.backward_steps() > 0)
      builder.warn(
          fmt::format("{}: time runs backwards ({} times); the clock stands still meanwhile", path_,
                      builder.backward_steps()));
    snapshot_.traces.push_back(builder.finish());
  }

  void read_entry(const PickleValue& entry, TraceBuilder& builder) {
    const std::string action = text(entry, "action", "a trace entry");
    ++snapshot_.figures.actions[action];
    if (action == "oom") {
      if (++ooms_ == 1)
        first_oom_ = fmt::format("when {} were asked for after {} events",
                                 format_byte_size(number_or(entry, "size", 0, "an oom entry")),
                                 builder.events());
      return;
    }
    const bool alloc = action == "alloc";
    if (!alloc && action != "free_requested" && action != "free_completed") return;

    const std::uint64_t address = number(entry, "addr", "a trace entry");
    const std::uint64_t size = number(entry, "size", "a trace entry");
    const std::uint64_t stream = number_or(entry, "stream", 0, "a trace entry");
    // Absolute microseconds, and 53 bits hold two centuries of them.
    const auto now_us = static_cast<std::int64_t>(
        number_or(entry, "time_us", 0, "a trace entry") & ((std::uint64_t{1} << 53) - 1));
    if (!first_us_) first_us_ = now_us;
    const std::int64_t time_us = now_us - *first_us_;
    if (alloc) {
      TraceFault fault = builder.alloc(address, time_us, size, stream);
      if (fault == TraceFault::kLiveAlready) {  // its free is not in the recording
        ++mended_;
        check(builder.free(TraceOp::kFreeCompleted, address, time_us));
        fault = builder.alloc(address, time_us, size, stream);
      }
      check(fault);
      return;
    }
    const TraceOp op =
        action == "free_requested" ? TraceOp::kFreeRequested : TraceOp::kFreeCompleted;
    TraceFault fault = builder.free(op, address, time_us);
    if (fault == TraceFault::kUnknown) {
      ++early_;
      check(builder.live_from_start(address, size, stream));
      fault = builder.free(op, address, time_us);
    }
    if (fault == TraceFault::kFreedAlready || fault == TraceFault::kRequestedTwice) {
      ++mended_;
      return;
    }
    check(fault);
  }

  void check(TraceFault fault) const {
    if (fault == TraceFault::kTooLarge)
      fail(fmt::format("a trace entry: the size exceeds the largest request, {}",
                       format_byte_size(kMaxRequestBytes)));
    if (fault != TraceFault::kNone)
      fail("more live bytes, blocks or streams than a trace can have");
  }

  const std::string& path_;
  const PickleDocument document_;
  std::size_t budget_;  // items that may still be visited
  Snapshot snapshot_;
  std::vector<LiveBlock> live_;  // in use when the snapshot was taken

  // Of the device being read.
  std::uint64_t mended_ = 0;
  std::uint64_t early_ = 0;
  std::uint64_t ooms_ = 0;
  std::string first_oom_;
  std::optional<std::int64_t> first_us_;
};

}  // namespace

Snapshot parse_snapshot(std::string_view bytes, const std::string& path) {
  return SnapshotReader(bytes, path).read();
}

}  // namespace tenon
