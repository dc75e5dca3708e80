// Recordings, settings and plans.
#include <optional>
#include <string>
#include <vector>

#include "target.h"
#include "tenon/base/error.h"
#include "tenon/heap/plan.h"
#include "tenon/lab/planning/instance.h"
#include "tenon/lab/planning/plan_file.h"
#include "tenon/memory/gpu/pytorch_rules.h"
#include "tenon/trace/csv.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/pickle.h"
#include "tenon/trace/profile.h"
#include "tenon/trace/rmm_csv.h"
#include "tenon/trace/snapshot.h"
#include "tenon/trace/snapshot_json.h"

namespace tenon::fuzz {
namespace {

// What every Trace promises, whatever it was read from.
void require_sound(const Trace& trace) {
  enum : std::uint8_t { kNew, kLive, kRequested, kFreed };
  std::vector<std::uint8_t> state(trace.blocks, kNew);
  std::uint32_t next = 0;
  for (const TraceEvent& event : trace.events) {
    require(event.block < trace.blocks, "blocks are numbered");
    require(event.stream < trace.streams.size(), "streams are numbered");
    require(event.site < trace.sites->sites(), "sites are numbered");
    std::uint8_t& now = state[event.block];
    if (event.op == TraceOp::kAlloc) {
      require(event.block == next++, "blocks are numbered in order of allocation");
      now = kLive;
    } else if (event.op == TraceOp::kFreeRequested) {
      require(now == kLive, "a free is requested of a live block, once");
      now = kRequested;
    } else {
      require(now == kLive || now == kRequested, "a block is freed once");
      now = kFreed;
    }
  }
  require(next == trace.blocks, "every block is allocated");
  for (const TraceMark& mark : trace.marks)
    require(mark.event <= trace.events.size(), "marks stand between events");
}

bool csv(std::string_view bytes) {
  return accepts([&] {
    const std::vector<Trace> traces = parse_csv_devices(bytes, "fuzz.csv");
    for (const Trace& trace : traces) require_sound(trace);
    const std::string text = format_csv(traces);
    std::vector<Trace> again;
    require(accepts([&] { again = parse_csv_devices(text, "fuzz.csv"); }),
            "what is written can be read");
    require(format_csv(again) == text, "what is read is written the same");
  });
}

bool rmm(std::string_view bytes) {
  return accepts([&] { require_sound(parse_rmm_csv(bytes, "fuzz.csv")); });
}

bool snapshot(std::string_view bytes) {
  return accepts([&] {
    for (const Trace& trace : parse_snapshot(bytes, "fuzz.pickle").traces) require_sound(trace);
  });
}

bool json(std::string_view bytes) {
  return accepts([&] {
    const std::optional<Snapshot> profile = parse_profile(bytes, "fuzz.json");
    const Snapshot read =
        profile ? *profile : parse_snapshot(pickle_of_json(bytes, "fuzz.json"), "fuzz.json");
    for (const Trace& trace : read.traces) require_sound(trace);
  });
}

bool pickle(std::string_view bytes) {
  return accepts([&] { PickleDocument(bytes, "fuzz.pickle"); });
}

bool zstd(std::string_view bytes) {
  return accepts([&] { decompress_zstd(bytes, "fuzz.zst"); });
}

bool settings(std::string_view bytes) {
  try {
    parse_caching_settings(bytes);
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

bool plan(std::string_view bytes) {
  return accepts([&] {
    const Plan read = parse_plan(bytes, "fuzz.plan");
    const std::string text = format_plan(read);
    require(accepts([&] { require(format_plan(parse_plan(text, "fuzz.plan")) == text,
                                  "a plan is written as it was read"); }),
            "what is written can be read");
  });
}

bool instance(std::string_view bytes) {
  return accepts([&] { parse_instance(bytes, "fuzz.csv"); });
}

const Registered kTextTargets[] = {
    {"csv", csv},           {"rmm", rmm},       {"snapshot", snapshot},
    {"json", json},         {"pickle", pickle}, {"zstd", zstd},
    {"settings", settings}, {"plan", plan},     {"instance", instance}};

}  // namespace
}  // namespace tenon::fuzz
