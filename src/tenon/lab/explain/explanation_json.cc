#include <nlohmann/json.hpp>

#include "tenon/lab/explain/explain.h"

namespace tenon {
namespace {

// Keeps the order in which keys are given.
using Json = nlohmann::ordered_json;

Json of(const std::vector<LiveGroup>& groups) {
  Json list = Json::array();
  for (const LiveGroup& group : groups)
    list.push_back({{"name", group.name},
                    {"bytes", group.bytes},
                    {"blocks", group.blocks},
                    {"largest_bytes", group.largest_bytes}});
  return list;
}

Json of(const std::vector<CategoryGroup>& groups) {
  Json list = Json::array();
  for (const CategoryGroup& group : groups) {
    Json confidence = Json::object();
    for (std::size_t i = 0; i < group.confidence_bytes.size(); ++i)
      confidence[std::string(confidence_name(static_cast<Confidence>(i)))] =
          group.confidence_bytes[i];
    list.push_back({{"name", group.name},
                    {"bytes", group.bytes},
                    {"blocks", group.blocks},
                    {"largest_bytes", group.largest_bytes},
                    {"bytes_by_confidence", std::move(confidence)},
                    {"by_call_site", of(group.sites)}});
  }
  return list;
}

Json of(const LiveSet& live) {
  return {{"bytes", live.bytes},
          {"blocks", live.blocks},
          {"by_category", of(live.by_category)},
          {"by_call_site", of(live.by_site)},
          {"by_phase", of(live.by_phase)},
          {"by_size", of(live.by_size)},
          {"by_age", of(live.by_age)}};
}

Json of(const Verdict& verdict) {
  Json changes = Json::array();
  for (const Change& change : verdict.changes)
    changes.push_back({{"what", change.what},
                       {"how", change.how},
                       {"saves_bytes", change.saves_bytes},
                       {"peak_bytes", change.peak_bytes},
                       {"lets_pass", change.lets_pass},
                       {"guess", change.guess},
                       {"of", change.reserved ? "reserved" : "live"},
                       {"measured", change.measured}});
  return {{"state", verdict_state_name(verdict.state)},
          {"moment", verdict.moment},
          {"peak_bytes", verdict.peak_bytes},
          {"sentences", verdict.sentences},
          {"changes", std::move(changes)},
          {"nothing_needed", verdict.nothing_needed},
          {"contradiction", verdict.contradiction},
          {"cannot_tell", verdict.cannot_tell}};
}

Json of(const Fragmentation& now) {
  Json stranded = Json::array();
  for (const StreamBytes& stream : now.stranded)
    stranded.push_back({{"stream", stream.stream}, {"free_bytes", stream.free_bytes}});
  Json held = Json::array();
  for (const HeldSegment& segment : now.held)
    held.push_back({{"address", segment.address},
                    {"total_bytes", segment.total_bytes},
                    {"block_bytes", segment.block_bytes}});
  return {{"stream", now.stream},
          {"reserved_bytes", now.reserved_bytes},
          {"requested_bytes", now.requested_bytes},
          {"overhead_bytes", now.overhead_bytes()},
          {"causes",
           {{"rounding_bytes", now.rounding_bytes},
            {"unsplit_bytes", now.unsplit_bytes},
            {"split_remainder_bytes", now.hole_bytes},
            {"held_by_one_block_bytes", now.held_bytes},
            {"cached_segment_bytes", now.cached_bytes},
            {"stranded_on_other_streams_bytes", now.stranded_bytes},
            {"other_pools_bytes", now.other_pools_bytes}}},
          {"waiting_for_streams_bytes", now.waiting_bytes},
          {"free_in_small_pool_bytes", now.free_small_bytes},
          {"largest_free_bytes", now.largest_free_bytes},
          {"free_blocks", now.free_blocks},
          {"stranded", std::move(stranded)},
          {"held_segments", std::move(held)}};
}

Json of(const OutOfMemoryReport& report) {
  static constexpr const char* kReasons[] = {"live_too_large", "fragmented", "limited", "unknown"};
  Json remedies = Json::array();
  for (const Remedy& remedy : report.remedies)
    remedies.push_back(
        {{"name", remedy.name}, {"helps", remedy.helps}, {"detail", remedy.detail}});
  return {{"time_us", report.time_us},
          {"event", report.events},
          {"request_bytes", report.request_bytes},
          {"segment_bytes", report.segment_bytes},
          {"stream", report.stream},
          {"device_free_bytes",
           report.device_free_bytes ? Json(*report.device_free_bytes) : Json(nullptr)},
          {"live_bytes", report.live_bytes},
          {"reserved_bytes", report.reserved_bytes},
          {"capacity_bytes", report.capacity_bytes},
          {"missing_bytes", report.missing_bytes},
          {"reason", kReasons[static_cast<std::size_t>(report.reason)]},
          {"why", report.why},
          {"call_site", report.call_site},
          {"stack", report.stack},
          {"live", of(report.live)},
          {"remedies", std::move(remedies)},
          {"fragmentation", of(report.fragmentation)}};
}

Json of(const Growth& growth) {
  Json suspects = Json::array();
  for (const GrowingSite& site : growth.suspects)
    suspects.push_back({{"name", site.name},
                        {"first_bytes", site.first_bytes},
                        {"older_bytes", site.older_bytes},
                        {"last_bytes", site.last_bytes},
                        {"first_blocks", site.first_blocks},
                        {"last_blocks", site.last_blocks},
                        {"bytes_per_iteration", site.bytes_per_iteration}});
  return {{"iterations_found_by",
           growth.found_by.empty() ? Json(nullptr) : Json(growth.found_by)},
          {"iterations", growth.iterations},
          {"boundaries", growth.boundaries},
          {"live_bytes", growth.live_bytes},
          {"suspects", std::move(suspects)}};
}

Json of(const std::vector<TagSleep>& sleeps) {
  Json list = Json::array();
  for (const TagSleep& tag : sleeps)
    list.push_back({{"tag", tag.tag},
                    {"times", tag.times},
                    {"most_bytes", tag.most_bytes},
                    {"dropped_bytes", tag.dropped_bytes},
                    {"asleep_us", tag.asleep_us},
                    {"at_live_peak_bytes", tag.at_peak_bytes},
                    {"at_end_bytes", tag.at_end_bytes}});
  return list;
}

Json of(const DeviceExplanation& device) {
  Json memory = Json::array();
  for (const MemoryAt& at : device.memory) {
    Json entry = of(at.fragmentation);
    entry["moment"] = at.moment;
    entry["event"] = at.events;
    entry["time_us"] = at.time_us;
    memory.push_back(std::move(entry));
  }
  Json failures = Json::array();
  for (const OutOfMemoryReport& report : device.failures) failures.push_back(of(report));
  const auto if_known = [&](std::uint64_t value) {
    return device.reserved_known ? Json(value) : Json(nullptr);
  };
  return {{"name", device.name},
          {"device", device.device},
          {"events", device.events},
          {"replayed_events", device.replayed_events},
          {"duration_us", device.duration_us},
          {"has_times", device.has_times},
          {"has_history", device.has_history},
          {"blocks_from_before_the_recording", device.early_blocks},
          {"live_peak_bytes", device.live_peak.bytes},
          {"live_peak_us", device.live_peak.time_us},
          {"live_peak_event", device.live_peak.events},
          {"traced_peak_bytes", device.traced_peak_bytes},
          {"live_at_end_bytes", device.live_at_end_bytes},
          {"reserved_at_live_peak_bytes", if_known(device.reserved_at_peak_bytes)},
          {"reserved_peak_bytes", if_known(device.reserved_peak_bytes)},
          {"verdict", of(device.verdict)},
          {"live_at_peak", of(device.at_peak)},
          {"memory", std::move(memory)},
          {"out_of_memory_count", device.failure_count},
          {"out_of_memory", std::move(failures)},
          {"sleeps", of(device.sleeps)},
          {"growth", of(device.growth)},
          {"warnings", device.warnings}};
}

}  // namespace

std::string explanation_json(const Explanation& explanation) {
  const SnapshotFigures& figures = explanation.figures;
  Json top = Json::array();
  for (const auto& [name, bytes] : explanation.top_frames) top.push_back({name, bytes});
  Json top_sites = Json::array();
  for (const auto& [name, bytes] : explanation.top_call_sites) top_sites.push_back({name, bytes});
  Json settings = Json::object();
  for (const auto& [name, value] : explanation.settings) settings[name] = value;
  Json devices = Json::array();
  for (const DeviceExplanation& device : explanation.devices) devices.push_back(of(device));
  const Json all = {{"file", explanation.path},
                    {"segments", figures.segments},
                    {"blocks", figures.blocks},
                    {"total_size", figures.total_bytes},
                    {"allocated_size", figures.allocated_bytes},
                    {"trace_entries", figures.trace_entries},
                    {"actions", figures.actions},
                    {"traced_peak_bytes", explanation.traced_peak_bytes},
                    {"external_annotations", figures.external_annotations},
                    {"top_allocating_frames", std::move(top)},
                    {"top_allocating_call_sites", std::move(top_sites)},
                    {"states", figures.states},
                    {"allocator_settings", std::move(settings)},
                    {"devices", std::move(devices)},
                    {"notes", explanation.notes}};
  // Names come from files and need not be UTF-8.
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tenon
