#include "train_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tenon/base/byte_size.h"
#include "tenon/lab/survey.h"
#include "tenon/lab/text_table.h"
#include "tenon/memory/policies.h"
#include "tenon/tensor/fallback.h"

namespace tenon::command {
namespace {

std::string bytes(std::uint64_t size) { return size == 0 ? "0" : format_byte_size(size); }

std::string by_use(const StepProfile& profile) {
  TextTable table({"what for", "at the peak", "share", "largest"});
  for (std::size_t i = 0; i < kMemoryUses; ++i) {
    if (profile.largest[i] == 0) continue;
    const double share =
        static_cast<double>(profile.at_peak[i]) / static_cast<double>(profile.peak_bytes);
    table.add({std::string(memory_use_name(static_cast<MemoryUse>(i))), bytes(profile.at_peak[i]),
               fmt::format("{:.1f} %", 100 * share), bytes(profile.largest[i])});
  }
  return table.format();
}

std::string by_layer(const StepProfile& profile) {
  TextTable table({"layer", "at the peak", "largest"});
  for (const LayerBytes& layer : profile.layers)
    table.add({layer.layer.empty() ? "(none: parameters, data, updates)" : layer.layer,
               bytes(layer.at_peak), bytes(layer.largest)});
  return table.format();
}

nlohmann::ordered_json uses_json(const RankMemory& rank) {
  nlohmann::ordered_json uses;
  for (std::size_t i = 0; i < kMemoryUses; ++i)
    uses[std::string(memory_use_name(static_cast<MemoryUse>(i)))] = rank.at_peak[i];
  return uses;
}

std::string by_policy(const std::vector<StepEvent>& events) {
  std::vector<Workload> workloads;
  workloads.emplace_back(trace_of(events, "training"));
  SurveyOptions options;
  for (const Policy& policy : policies())
    if (policy.name != "null") options.policies.push_back(policy.name);
  options.passes = 0;
  TextTable table({"policy", "reserved peak", "/ live peak", "fragmentation", "driver calls"});
  for (const SurveyResult& result : survey(workloads, options)) {
    if (!result.error.empty()) {
      table.add({result.policy, result.error});
      continue;
    }
    table.add({result.policy, bytes(result.reserved_peak_bytes),
               fmt::format("{:.3f}", static_cast<double>(result.reserved_peak_bytes) /
                                         static_cast<double>(result.live_peak_bytes)),
               fmt::format("{:.1f} %", 100 * result.fragmentation), grouped(result.driver_calls)});
  }
  return table.format();
}

std::string arena_text(const TrainOutcome& o) {
  if (!o.plan_report.empty())
    return fmt::format("planned from the first step: {}\n", o.plan_report);
  if (o.captured_bytes > 0)
    return fmt::format("a step is captured and queued again: {} of memory of its own\n",
                       bytes(o.captured_bytes));
  if (!o.has_arena) return "no arena: every block of a step went through the policy\n";
  std::string text = fmt::format(
      "the arena of a step: {} in {} {}, {} ({} bytes) of it used as predicted from the first: the "
      "high-water mark of {} later {} was that",
      bytes(o.arena_bytes), o.arena_chunks, o.arena_chunks == 1 ? "chunk" : "chunks",
      bytes(o.predicted_bytes), grouped(o.predicted_bytes), grouped(o.full_steps),
      o.full_steps == 1 ? "step" : "steps");
  if (o.smaller_steps > 0)
    text += fmt::format(", of {} with a smaller batch less", grouped(o.smaller_steps));
  if (o.larger_steps > 0) text += fmt::format(", of {} MORE", grouped(o.larger_steps));
  return text + "\n";
}

}  // namespace

std::string train_json(const TrainOutcome& o) {
  nlohmann::ordered_json json = {{"test_accuracy", o.test_accuracy},
                                       {"final_loss", o.final_loss},
                                       {"samples_per_second", o.samples_per_second},
                                       {"peak_bytes", o.peak_bytes},
                                       {"reserved_peak_bytes", o.reserved_peak_bytes},
                                       {"driver_calls_after_step_2", o.driver_calls_after_step_2},
                                       {"weights_hash", fmt::format("{:016x}", o.weights_hash)},
                                       {"layout_hash", fmt::format("{:016x}", o.layout_hash)}};
  if (o.loss_scale) {
    json["skipped_steps"] = o.loss_scale->skipped;
    json["loss_scale"] = o.loss_scale->value;
  }
  for (const HostFallback& each : fallbacks())
    json["host_calls"][each.name] = {{"calls", each.calls}, {"copied_bytes", each.copied_bytes}};
  if (!o.ranks.empty()) json["ranks"] = ranks_json(o.ranks);
  return json.dump(2) + "\n";
}

nlohmann::ordered_json ranks_json(const std::vector<RankMemory>& ranks) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const RankMemory& rank : ranks)
    all.push_back({{"peak_bytes", rank.peak_bytes},
                   {"at_peak", uses_json(rank)},
                   {"run_peak_bytes", rank.run_peak_bytes},
                   {"reserved_peak_bytes", rank.reserved_peak_bytes},
                   {"sent_bytes_per_step", rank.sent_bytes_per_step},
                   {"sent_bytes", rank.sent_bytes},
                   {"waited_seconds_per_step", rank.waited_seconds_per_step}});
  return all;
}

std::string ranks_report(const std::vector<RankMemory>& ranks) {
  std::vector<std::string> head = {"rank", "peak", "bytes"};
  std::vector<std::size_t> uses;
  for (std::size_t i = 0; i < kMemoryUses; ++i) {
    if (std::all_of(ranks.begin(), ranks.end(), [&](auto& r) { return r.at_peak[i] == 0; }))
      continue;
    uses.push_back(i);
    head.push_back(std::string(memory_use_name(static_cast<MemoryUse>(i))));
  }
  head.push_back("sent in a step");
  const bool waits = std::any_of(ranks.begin(), ranks.end(),
                                 [](auto& r) { return r.waited_seconds_per_step > 0; });
  if (waits) head.push_back("waited in a step");
  TextTable table(head);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::vector<std::string> row = {std::to_string(i), bytes(ranks[i].peak_bytes),
                                    grouped(ranks[i].peak_bytes)};
    for (const std::size_t use : uses) row.push_back(bytes(ranks[i].at_peak[use]));
    row.push_back(bytes(ranks[i].sent_bytes_per_step));
    if (waits) row.push_back(fmt::format("{:.3f} s", ranks[i].waited_seconds_per_step));
    table.add(row);
  }
  return fmt::format("\nmemory by rank, at its peak of the first two steps\n{}", table.format());
}

std::string train_report(const TrainOutcome& o, const std::string& policy) {
  const StepProfile profile = profile_step(o.events);
  std::string text = fmt::format(
      "\ntest accuracy {:.2f} %, test loss {:.4f}, training loss {:.4f}; {:.0f} samples/s\n"
      "weights {:016x}, layout {:016x}\n",
      100 * o.test_accuracy, o.test_loss, o.final_loss, o.samples_per_second, o.weights_hash,
      o.layout_hash);
  const double held = static_cast<double>(o.reserved_peak_bytes);
  text += fmt::format(
      "\nmemory: at most {} of tensors at once, {} held by {}{}{} ({:.1f} % of that never full)\n",
      bytes(o.peak_bytes), bytes(o.reserved_peak_bytes), policy,
      o.captured_bytes > 0 ? " and the captured step"
      : o.has_arena        ? " and the arena of a step"
                           : "",
      o.checkpoints ? ", with activations computed again in backward" : "",
      held == 0 ? 0 : 100 * std::max(0., 1 - static_cast<double>(o.peak_bytes) / held));
  text += fmt::format(
      "allocator calls in a step: {} blocks made and dropped; driver calls after step 2: {}\n",
      grouped(o.allocations_per_step), grouped(o.driver_calls_after_step_2));
  text += arena_text(o);
  if (const std::string calls = to_string(fallbacks()); !calls.empty())
    text += fmt::format("the host's calls, where the device has no kernel: {}\n", calls);
  if (!o.ranks.empty()) text += ranks_report(o.ranks);
  if (profile.peak_bytes == 0) return text;
  text += fmt::format("\npeak of the first two steps, {}, by what it is for\n{}",
                      bytes(profile.peak_bytes), by_use(profile));
  text += fmt::format("\n... and by layer\n{}", by_layer(profile));
  text += fmt::format(
      "\nwhich policy would have needed what: these steps replayed on the simulated device\n{}",
      by_policy(o.events));
  return text;
}

}  // namespace tenon::command
