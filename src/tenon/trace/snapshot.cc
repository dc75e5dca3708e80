#include "tenon/trace/snapshot.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/trace/pickle.h"
#include "tenon/trace/snapshot_device.h"
#include "tenon/trace/snapshot_fields.h"

namespace tenon {
namespace {

constexpr std::string_view kSegment = "a segment";
constexpr std::string_view kBlock = "a block";
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 62;

class SnapshotReader {
 public:
  SnapshotReader(std::string_view bytes, const std::string& path)
      : path_(path), document_(bytes, path), fields_(document_, path_, bytes.size()) {}

  Snapshot read() {
    if (!document_.root().is_dict())
      fields_.fail("holds no dict with segments and device_traces: write it with "
                   "torch.cuda.memory._dump_snapshot");
    const PickleValue* segments = document_.find(document_.root(), "segments");
    if (segments == nullptr)
      fields_.fail("holds no segments: it is no snapshot of torch.cuda.memory");
    for (const PickleValue& segment : fields_.sequence(*segments, "segments"))
      read_segment(segment);
    for (const auto& [key, value] : fields_.fields(document_.root(), "the snapshot")) {
      const auto name = key.as_string();
      if (name == "device_traces") {
        if (value.is_sequence()) read_devices(fields_.sequence(value, "device_traces"));
      } else if (name == "allocator_settings") {
        read_settings(value);
      } else if (name != "segments" && name != "external_annotations") {
        fields_.note_unknown(key, "the snapshot");
      }
    }
    const PickleValue* annotations = document_.find(document_.root(), "external_annotations");
    if (annotations != nullptr && annotations->is_sequence())
      read_annotations(fields_.sequence(*annotations, "external_annotations"));
    return finish();
  }

 private:
  void read_segment(const PickleValue& value) {
    SnapshotFigures& figures = snapshot_.figures;
    ++figures.segments;
    SnapshotSegment segment;
    const PickleValue* blocks = nullptr;
    std::optional<std::uint64_t> total;
    std::optional<std::uint64_t> allocated;
    for (const auto& [key, field] : fields_.fields(value, kSegment)) {
      const auto name = key.as_string();
      if (name == "total_size") {
        total = fields_.number(field, *name, kSegment);
      } else if (name == "allocated_size") {
        allocated = fields_.number(field, *name, kSegment);
      } else if (name == "device") {
        segment.device = static_cast<std::uint32_t>(field.as_uint64().value_or(0) & 0xffff);
      } else if (name == "stream") {
        segment.stream = static_cast<std::uint64_t>(field.as_int64().value_or(0));
      } else if (name == "address") {
        segment.address = field.as_uint64().value_or(0);
      } else if (name == "segment_type") {
        segment.small_pool = field.as_string() == "small";
      } else if (name == "segment_pool_id") {
        segment.pool = fields_.shown(field);
      } else if (name == "is_expandable") {
        segment.expandable = field.as_int64().value_or(0) != 0;
      } else if (name == "frames") {
        segment.site = site(field);
      } else if (name == "blocks") {
        blocks = &field;
      } else if (name != "active_size" && name != "requested_size") {  // sums over the blocks
        fields_.note_unknown(key, kSegment);
      }
    }
    if (!total) fields_.fail("a segment: \"total_size\" is missing");
    if (!allocated) fields_.fail("a segment: \"allocated_size\" is missing");
    if (blocks == nullptr) fields_.fail("a segment: \"blocks\" is missing");
    segment.total_bytes = *total;
    if (figures.total_bytes + *total > kMaxBytes || *total > kMaxBytes || *allocated > kMaxBytes)
      fields_.fail("the segments are larger than any memory");
    figures.total_bytes += *total;
    figures.allocated_bytes += *allocated;
    read_blocks(*blocks, segment);
    snapshot_.segments.push_back(std::move(segment));
  }

  // Older snapshots leave addresses out: blocks tile their segment.
  void read_blocks(const PickleValue& blocks, SnapshotSegment& segment) {
    std::uint64_t address = segment.address;
    for (const PickleValue& value : fields_.sequence(blocks, "blocks")) {
      ++snapshot_.figures.blocks;
      SnapshotBlock block;
      block.address = address;
      std::optional<std::uint64_t> size;
      std::optional<std::uint64_t> requested;
      std::string_view state;
      for (const auto& [key, field] : fields_.fields(value, kBlock)) {
        const auto name = key.as_string();
        if (name == "size") {
          size = fields_.number(field, *name, kBlock);
        } else if (name == "address") {
          block.address = field.as_uint64().value_or(address);
        } else if (name == "requested_size") {
          requested = field.as_uint64();
        } else if (name == "state") {
          state = fields_.text(field, *name, kBlock);
        } else if (name == "frames") {
          block.site = site(field);
        } else {
          fields_.note_unknown(key, kBlock);
        }
      }
      if (!size) fields_.fail("a block: \"size\" is missing");
      if (state.empty()) fields_.fail("a block: \"state\" is missing or no short string");
      block.size_bytes = *size;
      block.requested_bytes = requested.value_or(*size);
      block.state = known_state(state);
      ++snapshot_.figures.states[std::string(state)];
      segment.blocks.push_back(block);
      address = block.address + *size;
    }
  }

  static BlockState known_state(std::string_view state) {
    if (state == "active_allocated") return BlockState::kAllocated;
    if (state == "inactive") return BlockState::kInactive;
    // "active_awaiting_free" in some releases.
    return state.starts_with("active") ? BlockState::kPendingFree : BlockState::kOther;
  }

  std::uint32_t site(const PickleValue& frames) {
    const std::uint32_t stack = fields_.stack(frames);
    return stack == 0 ? 0 : fields_.sites().add_site({stack, 0, 0});
  }

  void read_devices(std::span<const PickleValue> devices) {
    for (const PickleValue& value : devices) {
      const auto entries = fields_.sequence(value, "device_traces");
      snapshot_.figures.trace_entries.push_back(entries.size());
      devices_.push_back(std::make_unique<SnapshotDevice>(fields_, snapshot_.figures, path_,
                                                          devices_.size()));
      for (const PickleValue& entry : entries) devices_.back()->read_entry(entry);
    }
  }

  void read_settings(const PickleValue& value) {
    if (!value.is_dict()) return;
    for (const auto& [key, field] : fields_.fields(value, "allocator_settings"))
      snapshot_.settings.emplace_back(fields_.shown(key), fields_.shown(field));
  }

  // {stage: START or END, name, device, time_us}
  void read_annotations(std::span<const PickleValue> annotations) {
    snapshot_.figures.external_annotations = annotations.size();
    for (const PickleValue& value : annotations) {
      if (!value.is_dict()) continue;
      std::string_view stage;
      std::string_view label;
      std::uint64_t device = 0;
      std::optional<std::uint64_t> now_us;
      for (const auto& [key, field] : fields_.fields(value, "an annotation")) {
        const auto name = key.as_string();
        if (name == "stage") stage = field.as_string().value_or("");
        if (name == "name") label = field.as_string().value_or("");
        if (name == "device") device = field.as_uint64().value_or(0);
        if (name == "time_us") now_us = field.as_uint64();
      }
      if (now_us && device < devices_.size() && (stage == "START" || stage == "END"))
        devices_[device]->annotate(stage == "START", *now_us, fields_.sites().add_text(label));
    }
  }

  Snapshot finish() {
    for (auto& device : devices_)
      if (device->has_events()) snapshot_.traces.push_back(device->finish(snapshot_.segments));
    if (snapshot_.traces.empty())
      fields_.fail("holds no recorded events: call torch.cuda.memory._record_memory_history() "
                   "before the part of the program that matters, then dump the snapshot");
    if (snapshot_.traces.size() == 1) snapshot_.traces[0].name = trace_name(path_);
    for (const std::string& name : fields_.unknown())
      snapshot_.notes.push_back(fmt::format("unknown field, left aside: {}", name));
    snapshot_.sites = std::make_shared<const SiteTable>(fields_.take_sites());
    for (Trace& trace : snapshot_.traces) trace.sites = snapshot_.sites;
    return std::move(snapshot_);
  }

  const std::string path_;
  const PickleDocument document_;
  SnapshotFields fields_;
  Snapshot snapshot_;
  std::vector<std::unique_ptr<SnapshotDevice>> devices_;
};

}  // namespace

Snapshot parse_snapshot(std::string_view bytes, const std::string& path) {
  return SnapshotReader(bytes, path).read();
}

}  // namespace tenon
