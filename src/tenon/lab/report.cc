#include "tenon/lab/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tenon/base/byte_size.h"
#include "tenon/lab/text_table.h"

namespace tenon {
namespace {

constexpr const char* kNone = "-";

double as_double(std::uint64_t number) { return static_cast<double>(number); }

// A policy that holds less than what is live (null) has no ratio.
std::optional<double> ratio(std::uint64_t bytes, std::uint64_t live) {
  if (live == 0 || bytes < live) return std::nullopt;
  return as_double(bytes) / as_double(live);
}

std::string format_ratio(const std::optional<double>& value) {
  return value ? fmt::format("{:.3f}", *value) : kNone;
}

std::string format_ns(const std::optional<double>& value) {
  return value ? fmt::format("{:.1f}", *value) : kNone;
}

// "12.3 ms 0.7%": a time, and its share of the recorded time.
std::string format_stall(std::uint64_t stall_ns, std::uint64_t duration_us) {
  if (stall_ns == 0) return "0";
  std::string text = format_duration_ns(as_double(stall_ns));
  if (duration_us > 0)
    text += fmt::format(" {:.1f}%", as_double(stall_ns) / as_double(duration_us) / 10);
  return text;
}

// Geometric mean and worst of the ratios seen.
class RatioMean {
 public:
  void add(const std::optional<double>& value) {
    if (!value) return;
    log_sum_ += std::log(*value);
    worst_ = std::max(worst_, *value);
    ++count_;
  }
  std::string format(const char* pattern = "{:.3f}") const {
    return count_ == 0 ? kNone : fmt::format(fmt::runtime(pattern), std::exp(log_sum_ / count_));
  }
  std::string format_worst() const { return count_ == 0 ? kNone : fmt::format("{:.3f}", worst_); }

 private:
  double log_sum_ = 0;
  double worst_ = 0;
  int count_ = 0;
};

std::vector<std::string> header(const SurveyResult& sample, bool capacities) {
  std::vector<std::string> cells = {"policy", "reserved", "/live"};
  if (capacities) cells.insert(cells.end(), {"capacity", "/live"});
  cells.insert(cells.end(),
               {"frag", "calls", "driver stall", "moving stall", "ns/event", "layout"});
  if (sample.capacity_bytes != 0)
    cells.push_back("in " + format_byte_size(sample.capacity_bytes));
  return cells;
}

const std::string& row_name(const SurveyResult& r) { return r.name.empty() ? r.policy : r.name; }

std::vector<std::string> row(const SurveyResult& r, bool capacities) {
  if (!r.error.empty()) return {row_name(r), "failed"};
  std::vector<std::string> cells = {row_name(r), format_byte_size(r.reserved_peak_bytes),
                                    format_ratio(ratio(r.reserved_peak_bytes, r.live_peak_bytes))};
  if (capacities) {
    const bool found = r.min_capacity_bytes && *r.min_capacity_bytes > 0;
    cells.push_back(found ? format_byte_size(*r.min_capacity_bytes) : kNone);
    cells.push_back(found ? format_ratio(ratio(*r.min_capacity_bytes, r.live_peak_bytes)) : kNone);
  }
  cells.push_back(r.reserved_peak_bytes == 0 ? kNone
                                             : fmt::format("{:.1f}%", 100 * r.fragmentation));
  cells.push_back(grouped(r.driver_calls));
  cells.push_back(format_stall(r.driver_stall_ns, r.trace_duration_us));
  cells.push_back(format_stall(r.moving_stall_ns, r.trace_duration_us));
  cells.push_back(format_ns(r.ns_per_event));
  cells.push_back(fmt::format("{:016x}", r.layout_hash).substr(0, 8));
  if (r.capacity_bytes != 0)
    cells.push_back(r.out_of_memory
                        ? fmt::format("out at event {}", grouped(r.out_of_memory->event))
                        : "fits: " + format_byte_size(r.reserved_in_capacity_bytes));
  return cells;
}

std::string trace_title(const SurveyResult& r) {
  const std::string time =
      r.trace_duration_us == 0
          ? ""
          : " in " + format_duration_ns(1e3 * as_double(r.trace_duration_us));
  std::string title = fmt::format("{}: {} events{}, live peak {} ({} bytes)", r.trace,
                                  grouped(r.events), time, format_byte_size(r.live_peak_bytes),
                                  grouped(r.live_peak_bytes));
  if (r.floor_ns) title += fmt::format("; the replay itself costs {:.1f} ns an event", *r.floor_ns);
  if (r.capacity_bytes != 0 && r.capacity_bytes < r.live_peak_bytes)
    title += fmt::format("\n  the capacity, {}, is smaller than the live peak: nothing can fit",
                         format_byte_size(r.capacity_bytes));
  if (r.capacity_bytes != 0)
    title += fmt::format("\n  reserved and frag: without a limit; calls, stalls, layout and what "
                         "was reserved where it fits: in {}",
                         format_byte_size(r.capacity_bytes));
  return title + "\n";
}

std::string means_table(const std::vector<SurveyResult>& results, std::size_t traces,
                        bool capacities) {
  TextTable table(capacities
                      ? std::vector<std::string>{"policy", "reserved/live", "worst",
                                                 "capacity/live", "worst", "ns/event"}
                      : std::vector<std::string>{"policy", "reserved/live", "worst", "ns/event"});
  const std::size_t policies = results.size() / traces;
  for (std::size_t p = 0; p < policies; ++p) {
    RatioMean reserved, capacity, ns;
    for (std::size_t i = p; i < results.size(); i += policies) {
      const SurveyResult& r = results[i];
      if (!r.error.empty()) continue;
      reserved.add(ratio(r.reserved_peak_bytes, r.live_peak_bytes));
      if (r.min_capacity_bytes) capacity.add(ratio(*r.min_capacity_bytes, r.live_peak_bytes));
      ns.add(r.ns_per_event);
    }
    std::vector<std::string> cells = {row_name(results[p]), reserved.format(),
                                      reserved.format_worst()};
    if (capacities) cells.insert(cells.end(), {capacity.format(), capacity.format_worst()});
    cells.push_back(ns.format("{:.1f}"));
    table.add(std::move(cells));
  }
  return fmt::format("geometric means over {} traces\n{}", traces, table.format());
}

}  // namespace

std::string report_json(const std::vector<SurveyResult>& results) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const SurveyResult& r : results) {
    if (!r.error.empty()) continue;
    nlohmann::ordered_json one;
    one["trace"] = r.trace;
    one["policy"] = r.policy;
    if (!r.name.empty()) {
      one["settings"] = r.name;
      one["conf"] = r.conf;
    }
    one["events"] = r.events;
    one["live_peak_bytes"] = r.live_peak_bytes;
    one["reserved_peak_bytes"] = r.reserved_peak_bytes;
    one["min_capacity_bytes"] = nullptr;
    if (r.min_capacity_bytes) one["min_capacity_bytes"] = *r.min_capacity_bytes;
    one["driver_calls"] = r.driver_calls;
    one["driver_stall_us"] = as_double(r.driver_stall_ns) / 1e3;
    one["moving_stall_us"] = as_double(r.moving_stall_ns) / 1e3;
    one["trace_duration_us"] = r.trace_duration_us;
    one["ns_per_event"] = nullptr;
    if (r.ns_per_event) one["ns_per_event"] = std::round(*r.ns_per_event * 1e3) / 1e3;
    one["out_of_memory"] = r.out_of_memory.has_value();
    one["layout_hash"] = fmt::format("{:016x}", r.layout_hash);
    one["fragmentation"] = std::round(r.fragmentation * 1e6) / 1e6;
    one["floor_ns_per_event"] = nullptr;
    if (r.floor_ns) one["floor_ns_per_event"] = std::round(*r.floor_ns * 1e3) / 1e3;
    if (r.capacity_bytes != 0) {
      one["capacity_bytes"] = r.capacity_bytes;
      one["reserved_in_capacity_bytes"] = r.reserved_in_capacity_bytes;
    }
    if (r.out_of_memory) {
      one["out_of_memory_event"] = r.out_of_memory->event;
      one["out_of_memory_message"] = r.out_of_memory->message;
    }
    all.push_back(std::move(one));
  }
  // Names come from files and need not be UTF-8.
  return all.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string report_table(const std::vector<SurveyResult>& results) {
  if (results.empty()) return "";
  const bool capacities = std::any_of(results.begin(), results.end(), [](const SurveyResult& r) {
    return r.min_capacity_bytes.has_value();
  });
  // Results come trace by trace; the first policy's name marks where the next trace begins.
  const std::string& first_policy = row_name(results.front());
  std::string out;
  std::size_t traces = 0;
  for (std::size_t i = 0; i < results.size();) {
    out += trace_title(results[i]);
    TextTable table(header(results[i], capacities));
    std::string failures;
    const std::size_t from = i;
    for (; i < results.size() && (i == from || row_name(results[i]) != first_policy); ++i) {
      table.add(row(results[i], capacities));
      if (!results[i].error.empty())
        failures += fmt::format("  {} failed: {}\n", row_name(results[i]), results[i].error);
      if (results[i].out_of_memory)
        failures +=
            fmt::format("  {}: {}\n", row_name(results[i]), results[i].out_of_memory->message);
    }
    out += table.format() + failures + "\n";
    ++traces;
  }
  if (traces > 1) out += means_table(results, traces, capacities);
  return out;
}

}  // namespace tenon
