#include "tenon/lab/advice/advice_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tenon/base/byte_size.h"
#include "tenon/lab/text_table.h"

namespace tenon {
namespace {

using Json = nlohmann::ordered_json;

std::string bytes(std::uint64_t value) { return format_byte_size(value); }

// "1.23 GiB less than", "as much as", "0.5 GiB more than".
std::string compared(std::uint64_t value, std::uint64_t with) {
  if (value == with) return "as much as";
  return value < with ? bytes(with - value) + " less than" : bytes(value - with) + " more than";
}

bool fits(const AdviceFigures& figures) { return figures.fits.value_or(true); }

// What to tell somebody whose program ran out of memory, in a sentence or two.
std::string verdict(const Advice& advice) {
  if (advice.hopeless())
    return fmt::format(
        "nothing helps: the program itself needs {} at once, {} more than the capacity, {}. It "
        "must need less (a smaller batch, checkpointing, offloading), or the device be larger.",
        bytes(advice.live_peak_bytes), bytes(advice.live_peak_bytes - advice.capacity_bytes),
        bytes(advice.capacity_bytes));
  if (advice.capacity_bytes != 0 && !fits(advice.best)) {
    std::string ours;
    for (const AdviceFigures* figures : {&advice.stitched, &advice.plan})
      if (fits(*figures)) ours += (ours.empty() ? "" : " and ") + figures->policy;
    return fmt::format(
        "no PyTorch settings that were tried fit into {}: the best need {}. The program's live "
        "peak is {}, so memory is lost to fragmentation.{}",
        bytes(advice.capacity_bytes), bytes(*advice.smallest_capacity.min_capacity_bytes),
        bytes(advice.live_peak_bytes),
        ours.empty() ? " Tenon's own policies do not fit either."
                     : fmt::format(" Tenon's {} would fit.", ours));
  }
  if (advice.capacity_bytes != 0)
    return fmt::format("it fits into {} with these settings (PyTorch's defaults: {}; "
                       "expandable_segments:True: {}).",
                       bytes(advice.capacity_bytes),
                       fits(advice.default_settings) ? "it fits" : "it does not",
                       fits(advice.expandable) ? "it fits" : "it does not");
  if (advice.best.conf.empty()) return "PyTorch's defaults are the best settings found.";
  return fmt::format(
      "these settings reserve {} PyTorch's defaults do and {} with expandable_segments:True. The "
      "smallest device that they fit on is {}: {} with the defaults, {} with "
      "expandable_segments:True.",
      compared(advice.best.reserved_peak_bytes, advice.default_settings.reserved_peak_bytes),
      compared(advice.best.reserved_peak_bytes, advice.expandable.reserved_peak_bytes),
      bytes(*advice.best.min_capacity_bytes),
      compared(*advice.best.min_capacity_bytes, *advice.default_settings.min_capacity_bytes),
      compared(*advice.best.min_capacity_bytes, *advice.expandable.min_capacity_bytes));
}

std::string line_to_paste(const std::string& conf) {
  return conf.empty() ? "unset PYTORCH_CUDA_ALLOC_CONF"
                      : fmt::format("export PYTORCH_CUDA_ALLOC_CONF={}", conf);
}

Json json_of(const AdviceFigures& figures) {
  Json out = {{"policy", figures.policy},
              {"conf", figures.conf},
              {"reserved_peak_bytes", figures.reserved_peak_bytes},
              {"min_capacity_bytes", nullptr},
              {"driver_stall_us", static_cast<double>(figures.driver_stall_ns) / 1000}};
  if (figures.min_capacity_bytes) out["min_capacity_bytes"] = *figures.min_capacity_bytes;
  if (figures.fits) out["fits"] = *figures.fits;
  return out;
}

void add_row(TextTable& table, const Advice& advice, const std::string& name,
             const AdviceFigures& figures) {
  const auto ratio = [&](std::uint64_t value) {
    return fmt::format("{:.3f}", static_cast<double>(value) /
                                     static_cast<double>(std::max<std::uint64_t>(
                                         1, advice.live_peak_bytes)));
  };
  std::vector<std::string> row = {name,
                                  bytes(figures.reserved_peak_bytes),
                                  ratio(figures.reserved_peak_bytes),
                                  bytes(*figures.min_capacity_bytes),
                                  ratio(*figures.min_capacity_bytes),
                                  format_duration_ns(figures.driver_stall_ns)};
  if (advice.capacity_bytes != 0) row.push_back(fits(figures) ? "fits" : "does not fit");
  table.add(row);
}

}  // namespace

std::string advice_json(const Advice& advice, double seconds) {
  Json out;
  out["trace"] = advice.trace;
  out["events"] = advice.events;
  out["live_peak_bytes"] = advice.live_peak_bytes;
  if (advice.capacity_bytes != 0) out["capacity_bytes"] = advice.capacity_bytes;
  out["conf"] = advice.best.conf;
  out["line"] = line_to_paste(advice.best.conf);
  out["reserved_peak_bytes"] = advice.best.reserved_peak_bytes;
  out["min_capacity_bytes"] = *advice.best.min_capacity_bytes;
  out["best_in_both"] = advice.best_in_both;
  out["helps"] = !advice.hopeless() && (advice.capacity_bytes == 0 || fits(advice.best));
  out["missing_bytes"] = advice.hopeless() ? advice.live_peak_bytes - advice.capacity_bytes : 0;
  out["verdict"] = verdict(advice);
  out["best"] = json_of(advice.best);
  out["least_reserved"] = json_of(advice.least_reserved);
  out["smallest_capacity"] = json_of(advice.smallest_capacity);
  out["default"] = json_of(advice.default_settings);
  out["expandable"] = json_of(advice.expandable);
  out["stitched"] = json_of(advice.stitched);
  out["plan"] = json_of(advice.plan);
  out["settings_tried"] = advice.settings_tried;
  out["seconds"] = seconds;
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string advice_text(const Advice& advice, double seconds) {
  std::string out = fmt::format("{}: {} events, live peak {} ({} bytes)\n", advice.trace,
                                grouped(advice.events), bytes(advice.live_peak_bytes),
                                grouped(advice.live_peak_bytes));
  std::vector<std::string> head = {"settings", "reserved", "/live",
                                   "smallest device", "/live", "driver stall"};
  if (advice.capacity_bytes != 0) head.push_back("in " + bytes(advice.capacity_bytes));
  TextTable table(head);
  add_row(table, advice, "PyTorch's defaults", advice.default_settings);
  add_row(table, advice, "expandable_segments:True", advice.expandable);
  add_row(table, advice, "best found", advice.best);
  if (!advice.best_in_both) {
    add_row(table, advice, "least reserved", advice.least_reserved);
    add_row(table, advice, "smallest device", advice.smallest_capacity);
  }
  add_row(table, advice, "Tenon, stitched", advice.stitched);
  add_row(table, advice, "Tenon, plan", advice.plan);
  out += fmt::format("{}\n{}\n", table.format(), verdict(advice));
  if (advice.hopeless()) return out;
  out += fmt::format("\n  {}\n\n", line_to_paste(advice.best.conf));
  if (!advice.best_in_both)
    out += fmt::format(
        "No settings were found that are best in both figures. Least reserved:\n  {}\nSmallest "
        "device:\n  {}\n\n",
        line_to_paste(advice.least_reserved.conf), line_to_paste(advice.smallest_capacity.conf));
  if (advice.best.conf.find("large_segment_size_mb") != std::string::npos)
    out += "large_segment_size_mb is a recent setting (PyTorch 2.11 has it).\n";
  out += fmt::format("{} settings tried in {:.1f} s.\n", grouped(advice.settings_tried), seconds);
  return out;
}

}  // namespace tenon
