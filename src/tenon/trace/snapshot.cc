#include "tenon/trace/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

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
constexpr std::size_t kMaxPoolText = 64;  // "(0, 0)" in files of PyTorch

// Segments, entries and annotations are taken while the pickle is read. What is left in the
// document then (lists that were written in another way) is read afterwards.
class SnapshotReader : private PickleSink {
 public:
  SnapshotReader(std::string_view bytes, const std::string& path, const ReadHooks& hooks)
      : bytes_(bytes), path_(path), hooks_(hooks), fields_(path_, bytes.size()) {}

  Snapshot read() {
    const PickleDocument document(bytes_, path_, this);
    fields_.use(document);
    if (is_list_of_segments(document, document.root())) {  // torch.cuda.memory_snapshot()
      for (const PickleValue& segment : fields_.sequence(document.root(), "segments"))
        read_segment(segment);
      return finish();
    }
    const PickleValue root = snapshot_in(document);
    const PickleValue* segments = document.find(root, "segments");
    for (const PickleValue& segment : fields_.sequence(*segments, "segments"))
      read_segment(segment);
    for (const auto& [key, value] : fields_.fields(root, "the snapshot")) {
      const auto name = key.as_string();
      snapshot_.fields.push_back(fields_.shown(key));
      if (name == "device_traces") {
        if (value.kind() != PickleValue::Kind::kNone)
          read_devices(fields_.sequence(value, "device_traces"));
      } else if (name == "allocator_settings") {
        read_settings(value);
      } else if (name == kMadeUpSegments) {
        made_up_segments_ = true;
      } else if (name != "segments" && name != "external_annotations" &&
                 name != "host_segments" && name != "host_traces") {  // of pinned memory
        fields_.note_unknown(key, "the snapshot");
      }
    }
    const PickleValue* annotations = document.find(root, "external_annotations");
    if (annotations != nullptr && annotations->is_sequence())
      for (const PickleValue& value : fields_.sequence(*annotations, "external_annotations"))
        read_annotation(value);
    return finish();
  }

 private:
  enum class Part : std::uint8_t { kSegments, kDevice, kAnnotations };

  bool wants(std::string_view key, std::optional<std::size_t> index) override {
    if (key == "segments" && !index) {
      part_ = Part::kSegments;
    } else if (key == "external_annotations" && !index) {
      part_ = Part::kAnnotations;
    } else if (key == "device_traces" && index) {
      part_ = Part::kDevice;
      part_device_ = *index;
      device(*index);
    } else {
      return false;
    }
    return true;
  }
  void item(const PickleDocument& document, const PickleValue& value) override {
    fields_.use(document);
    switch (part_) {
      case Part::kSegments: read_segment(value); break;
      case Part::kDevice: read_entry(part_device_, value); break;
      case Part::kAnnotations: read_annotation(value); break;
    }
  }
  void passed(std::size_t offset, bool first_time) override {
    if (hooks_.passed) hooks_.passed(offset);
    if (hooks_.progress)
      hooks_.progress(offset + (first_time ? 0 : bytes_.size()), 2 * bytes_.size());
  }

  static bool is_list_of_segments(const PickleDocument& document, const PickleValue& value) {
    if (!value.is_sequence()) return false;
    const auto items = document.items(value);
    return !items.empty() && items[0].is_dict() &&
           document.find(items[0], "total_size") != nullptr;
  }

  // The dict with segments: the document, or what a program put around it: {"rank": 0, "snapshot":
  // {...}}, [{...}]. The first one counts.
  PickleValue snapshot_in(const PickleDocument& document) {
    const auto is_snapshot = [&](const PickleValue& value) {
      return value.is_dict() && document.find(value, "segments") != nullptr;
    };
    const PickleValue& root = document.root();
    if (is_snapshot(root)) return root;
    constexpr std::size_t kMostLooked = 64;
    if (root.is_dict())
      for (const auto& [key, value] : document.pairs(root).first(
               std::min(kMostLooked, document.pairs(root).size())))
        if (is_snapshot(value)) return value;
    if (root.is_sequence())
      for (const PickleValue& value : document.items(root).first(
               std::min(kMostLooked, document.items(root).size())))
        if (is_snapshot(value)) return value;
    if (root.is_dict()) fields_.fail("holds no segments: it is no snapshot of torch.cuda.memory");
    fields_.fail("holds no dict with segments and device_traces: write it with "
                 "torch.cuda.memory._dump_snapshot");
  }

  SnapshotDevice& device(std::size_t index) {
    if (index >= kMaxTraceDevices)
      fields_.fail(fmt::format("device_traces holds more than {} devices", kMaxTraceDevices));
    while (devices_.size() <= index) {
      devices_.push_back(std::make_unique<SnapshotDevice>(fields_, snapshot_.figures, path_,
                                                          devices_.size()));
      snapshot_.figures.trace_entries.push_back(0);
    }
    return *devices_[index];
  }
  void read_entry(std::size_t index, const PickleValue& value) {
    SnapshotDevice& own = device(index);
    ++snapshot_.figures.trace_entries[index];
    own.read_entry(value);
  }

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
        const std::uint64_t index = fields_.number_or(0, field, *name, kSegment);
        if (index >= kMaxTraceDevices)
          fields_.fail(fmt::format("a segment: device {} is none of at most {}", index,
                                   kMaxTraceDevices));
        segment.device = static_cast<std::uint32_t>(index);
      } else if (name == "stream") {
        segment.stream = static_cast<std::uint64_t>(field.as_int64().value_or(0));
      } else if (name == "address") {
        segment.address = fields_.number_or(0, field, *name, kSegment);
      } else if (name == "segment_type") {
        segment.small_pool = field.as_string() == "small";
      } else if (name == "segment_pool_id") {
        segment.pool = fields_.shown(field).substr(0, kMaxPoolText);
      } else if (name == "is_expandable") {
        segment.expandable = field.as_int64().value_or(0) != 0;
        if (snapshot_.segments.empty()) snapshot_.fields.emplace_back("is_expandable");
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
          block.address = fields_.number_or(address, field, *name, kBlock);
        } else if (name == "requested_size") {
          if (field.kind() != PickleValue::Kind::kNone)
            requested = fields_.number(field, *name, kBlock);
        } else if (name == "state") {
          state = fields_.text(field, *name, kBlock);
        } else if (name == "frames") {
          block.site = site(field);
        } else if (name == "history") {
          block.site = site_of_history(field);
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

  // PyTorch 2.0 has a block's stacks there, the newest first.
  std::uint32_t site_of_history(const PickleValue& history) {
    if (!history.is_sequence()) return 0;
    for (const PickleValue& entry : fields_.sequence(history, "history")) {
      if (!entry.is_dict()) return 0;
      for (const auto& [key, field] : fields_.fields(entry, "history"))
        if (key.as_string() == "frames") return site(field);
      return 0;
    }
    return 0;
  }

  void read_devices(std::span<const PickleValue> devices) {
    for (std::size_t index = 0; index < devices.size(); ++index) {
      device(index);
      for (const PickleValue& entry : fields_.sequence(devices[index], "device_traces"))
        read_entry(index, entry);
    }
  }

  void read_settings(const PickleValue& value) {
    if (!value.is_dict()) return;
    for (const auto& [key, field] : fields_.fields(value, "allocator_settings"))
      snapshot_.settings.emplace_back(fields_.shown(key), fields_.shown(field));
  }

  // {stage: START or END, name, device, time_us}
  void read_annotation(const PickleValue& value) {
    ++snapshot_.figures.external_annotations;
    if (!value.is_dict()) return;
    std::string_view stage;
    std::string_view label;
    Annotation annotation;
    std::optional<std::uint64_t> now_us;
    for (const auto& [key, field] : fields_.fields(value, "an annotation")) {
      const auto name = key.as_string();
      if (name == "stage") {
        stage = field.as_string().value_or("");
      } else if (name == "name") {
        label = field.as_string().value_or("").substr(0, SnapshotFields::kMaxText);
      } else if (name == "device") {
        annotation.device = field.as_uint64().value_or(0);
      } else if (name == "time_us") {
        now_us = field.as_uint64();
      } else {
        fields_.note_unknown(key, "an annotation");
      }
    }
    if (!now_us || (stage != "START" && stage != "END")) return;
    annotation.begin = stage == "START";
    annotation.now_us = *now_us;
    annotation.text = fields_.sites().add_text(label);
    annotations_.push_back(annotation);
  }

  // Nothing was recorded, but the segments say what was live when the snapshot was taken.
  void read_still_life() {
    std::set<std::uint32_t> used;
    for (const SnapshotSegment& segment : snapshot_.segments)
      for (const SnapshotBlock& block : segment.blocks)
        if (block.in_use()) used.insert(segment.device);
    for (const std::uint32_t number : used) {
      snapshot_.traces.push_back(device(number).finish(snapshot_.segments));
      snapshot_.traces.back().warnings.push_back(fmt::format(
          "{}: no events were recorded: only what was live when the snapshot was taken is known; "
          "torch.cuda.memory._record_memory_history() records more",
          path_));
    }
  }

  Snapshot finish() {
    for (const Annotation& note : annotations_)
      if (note.device < devices_.size())
        devices_[note.device]->annotate(note.begin, note.now_us, note.text);
    for (auto& device : devices_)
      if (device->has_events()) snapshot_.traces.push_back(device->finish(snapshot_.segments));
    if (std::any_of(devices_.begin(), devices_.end(),
                    [](const auto& device) { return device->names_pools(); }))
      snapshot_.fields.emplace_back("pool_id");
    if (snapshot_.traces.empty()) read_still_life();
    if (made_up_segments_) snapshot_.segments.clear();
    if (snapshot_.traces.empty())
      fields_.fail("holds no recorded events: call torch.cuda.memory._record_memory_history() "
                   "before the part of the program that matters, then dump the snapshot");
    if (snapshot_.traces.size() == 1) snapshot_.traces[0].name = trace_name(path_);
    for (const std::string& name : fields_.unknown())
      snapshot_.notes.push_back(fmt::format("unknown field, left aside: {}", name));
    for (const auto& [state, blocks] : snapshot_.figures.states)
      if (known_state(state) == BlockState::kOther)
        snapshot_.notes.push_back(
            fmt::format("unknown state \"{}\" of {} block{}, taken as free", state, blocks,
                        blocks == 1 ? "" : "s"));
    snapshot_.sites = std::make_shared<const SiteTable>(fields_.take_sites());
    for (Trace& trace : snapshot_.traces) {
      trace.sites = snapshot_.sites;
      trace.oldest_segment_first = oldest_segment_first();
    }
    return std::move(snapshot_);
  }

  // Whether PyTorch 2.12 or newer wrote the snapshot: entries name their pool since then. Without
  // entries, 2.13 or newer: it has this setting's value since then.
  bool oldest_segment_first() const {
    return std::find(snapshot_.fields.begin(), snapshot_.fields.end(), "pool_id") !=
               snapshot_.fields.end() ||
           std::any_of(snapshot_.settings.begin(), snapshot_.settings.end(),
                       [](const auto& setting) { return setting.first == "max_round_threshold"; });
  }

  struct Annotation {
    std::uint64_t device = 0;
    std::uint64_t now_us = 0;
    std::uint32_t text = 0;
    bool begin = false;
  };

  const std::string_view bytes_;
  const std::string path_;
  const ReadHooks& hooks_;
  SnapshotFields fields_;
  Snapshot snapshot_;
  std::vector<std::unique_ptr<SnapshotDevice>> devices_;
  std::vector<Annotation> annotations_;
  bool made_up_segments_ = false;
  Part part_ = Part::kSegments;  // of what items are
  std::size_t part_device_ = 0;
};

}  // namespace

Snapshot parse_snapshot(std::string_view bytes, const std::string& path,
                        const ReadHooks& hooks) {
  return SnapshotReader(bytes, path, hooks).read();
}

}  // namespace tenon
