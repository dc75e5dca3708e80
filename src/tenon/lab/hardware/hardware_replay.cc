#include "tenon/lab/hardware/hardware_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "tenon/base/byte_size.h"
#include "tenon/lab/capacity.h"
#include "tenon/lab/text_table.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t ns_since(Clock::time_point start) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

// Runs the trace; nothing, or where memory ran out. Blocks that are still live then are dropped.
std::optional<OutOfMemoryAt> run(const Workload& workload, DeviceAllocator& allocator,
                                 const std::vector<Stream>& streams) {
  std::vector<DataPtr> blocks(workload.slots());
  for (std::size_t i = 0; i < workload.ops().size(); ++i) {
    const ReplayOp& op = workload.ops()[i];
    if (op.gives_back) allocator.empty_cache();
    if (!op.alloc) {
      blocks[op.slot].clear();
      continue;
    }
    try {
      blocks[op.slot] = allocator.allocate_on(op.size_bytes, streams[op.stream]);
    } catch (const OutOfMemory& error) {
      return OutOfMemoryAt{workload.event_number(i), error.what()};
    }
  }
  return std::nullopt;
}

}  // namespace

HardwareFigures replay_on_hardware(const std::shared_ptr<const CudaDriver>& driver, int index,
                                   const Workload& workload, const ReplaySetup& setup,
                                   int passes) {
  HardwareFigures figures;
  CudaBackend backend(driver, index);
  if (setup.capacity_bytes != 0 && !find_policy(setup.policy).limits_itself)
    backend.set_limit(setup.capacity_bytes);
  std::vector<Stream> streams = {{backend.device(), 0}};
  while (streams.size() < workload.streams()) streams.push_back(backend.create_stream());
  try {
    const auto allocator = make_policy(setup.policy, backend, replay_options(workload, setup));
    const auto start = Clock::now();
    figures.out_of_memory = run(workload, *allocator, streams);
    figures.elapsed_ns = ns_since(start);
    figures.ledger = backend.ledger();
    figures.reserved_peak_bytes = backend.held_peak_bytes();
    if (figures.out_of_memory || passes <= 0 || workload.ops().empty()) return figures;
    std::vector<std::uint64_t> times;
    for (int i = 0; i < passes; ++i) {
      const auto pass_start = Clock::now();
      run(workload, *allocator, streams);
      times.push_back(ns_since(pass_start));
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    figures.warm_ns_per_event =
        static_cast<double>(*middle) / static_cast<double>(workload.ops().size());
  } catch (const OutOfMemory& error) {  // already when the policy was made
    figures.out_of_memory = OutOfMemoryAt{0, error.what()};
  }
  return figures;
}

std::vector<HardwareResult> survey_hardware(const std::shared_ptr<const CudaDriver>& driver,
                                            int index, std::span<const Workload> workloads,
                                            const SurveyOptions& options) {
  std::vector<HardwareResult> results;
  // Each replay has a backend of its own; this one keeps the device's context from ending in
  // between, which takes a good part of a second to make.
  const CudaBackend context_holder(driver, index);
  for (const Workload& workload : workloads)
    for (const std::string& policy : options.policies) {
      if (policy == "null" || policy == "host") continue;  // they ask no GPU for memory
      HardwareResult result;
      result.trace = workload.name();
      result.policy = policy;
      result.events = workload.ops().size();
      result.live_peak_bytes = workload.live_peak_bytes();
      result.capacity_bytes = options.capacity_bytes;
      ReplaySetup setup;
      setup.policy = policy;
      setup.options.conf = options.conf;
      setup.options.page_bytes = options.page_bytes;
      setup.lag_ns = 0;
      try {
        if (options.find_capacity) {
          const HardwareFigures free_run =
              replay_on_hardware(driver, index, workload, setup, 0);
          if (!free_run.out_of_memory)
            result.min_capacity_bytes = search_capacity(
                workload.live_peak_bytes(), free_run.reserved_peak_bytes,
                [&](std::uint64_t capacity_bytes) {
                  ReplaySetup limited = setup;
                  limited.capacity_bytes = capacity_bytes;
                  return !replay_on_hardware(driver, index, workload, limited, 0).out_of_memory;
                });
        }
        setup.capacity_bytes = options.capacity_bytes;
        result.hardware = replay_on_hardware(driver, index, workload, setup, options.passes);
        result.simulated = replay(workload, setup);
      } catch (const DeviceError& error) {
        result.error = error.what();
      }
      results.push_back(std::move(result));
    }
  return results;
}

// ------------------------------------------------------------------------------------------------
// Reports

std::string report_hardware_table(const std::vector<HardwareResult>& results) {
  std::string text;
  std::string trace;
  TextTable table({""});
  const auto finish = [&] {
    if (!trace.empty()) text += table.format() + "\n";
  };
  for (const HardwareResult& r : results) {
    if (r.trace != trace) {
      finish();
      trace = r.trace;
      text += fmt::format("{}: {} events, live peak {}\n", trace, grouped(r.events),
                          format_byte_size(r.live_peak_bytes));
      table = TextTable({"policy", "reserved", "simulated", "/live", "calls", "stall", "simulated",
                         "of it moving", "first ns/event", "warm ns/event", "capacity"});
    }
    if (!r.error.empty()) {
      table.add({r.policy, r.error});
      continue;
    }
    if (r.hardware.out_of_memory) {
      table.add({r.policy, fmt::format("out of memory at event {}",
                                       grouped(r.hardware.out_of_memory->event))});
      continue;
    }
    const HardwareFigures& h = r.hardware;
    const auto as_double = [](std::uint64_t n) { return static_cast<double>(n); };
    table.add({r.policy, format_byte_size(h.reserved_peak_bytes),
               format_byte_size(r.simulated.reserved_peak_bytes),
               r.live_peak_bytes == 0
                   ? "-"
                   : fmt::format("{:.3f}", as_double(h.reserved_peak_bytes) /
                                               as_double(r.live_peak_bytes)),
               grouped(h.ledger.memory_calls()), format_duration_ns(as_double(h.ledger.stall_ns)),
               format_duration_ns(as_double(r.simulated.ledger.stall_ns)),
               format_duration_ns(as_double(h.ledger.moving_stall_ns)),
               r.events == 0 ? "-"
                             : fmt::format("{:.1f}", as_double(h.elapsed_ns) / as_double(r.events)),
               h.warm_ns_per_event ? fmt::format("{:.1f}", *h.warm_ns_per_event) : "-",
               r.min_capacity_bytes ? format_byte_size(*r.min_capacity_bytes) : "-"});
  }
  finish();
  return text;
}

std::string report_hardware_json(const std::vector<HardwareResult>& results) {
  const auto ledger = [](const DriverLedger& l) {
    nlohmann::json calls = nlohmann::json::object();
    for (std::size_t i = 0; i < kDriverCalls; ++i)
      calls[std::string(driver_call_name(static_cast<DriverCall>(i)))] = l.calls[i];
    return nlohmann::json{{"calls", calls},
                          {"stall_ns", l.stall_ns},
                          {"moving_stall_ns", l.moving_stall_ns}};
  };
  nlohmann::json out = nlohmann::json::array();
  for (const HardwareResult& r : results) {
    nlohmann::json entry = {{"trace", r.trace},
                            {"policy", r.policy},
                            {"events", r.events},
                            {"live_peak_bytes", r.live_peak_bytes}};
    if (r.capacity_bytes != 0) entry["capacity_bytes"] = r.capacity_bytes;
    if (!r.error.empty()) entry["error"] = r.error;
    if (r.hardware.out_of_memory)
      entry["out_of_memory"] = {{"event", r.hardware.out_of_memory->event},
                                {"message", r.hardware.out_of_memory->message}};
    entry["hardware"] = {{"reserved_peak_bytes", r.hardware.reserved_peak_bytes},
                         {"ledger", ledger(r.hardware.ledger)},
                         {"elapsed_ns", r.hardware.elapsed_ns},
                         {"warm_ns_per_event", nullptr}};
    if (r.hardware.warm_ns_per_event)
      entry["hardware"]["warm_ns_per_event"] = *r.hardware.warm_ns_per_event;
    entry["simulated"] = {{"reserved_peak_bytes", r.simulated.reserved_peak_bytes},
                          {"ledger", ledger(r.simulated.ledger)}};
    entry["min_capacity_bytes"] = nullptr;
    if (r.min_capacity_bytes) entry["min_capacity_bytes"] = *r.min_capacity_bytes;
    out.push_back(std::move(entry));
  }
  return out.dump(2) + "\n";
}

}  // namespace tenon
