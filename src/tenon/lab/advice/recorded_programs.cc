#include "tenon/lab/advice/recorded_programs.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/lab/advice/recorded_settings.h"
#include "tenon/lab/explain/growth.h"
#include "tenon/lab/verdict/early_blocks.h"

namespace tenon {

namespace {

// "C:\\dir\\train.py"
bool has_windows_paths(const Snapshot& snapshot) {
  if (snapshot.sites == nullptr) return false;
  const SiteTable& sites = *snapshot.sites;
  for (std::uint32_t number = 1; number < sites.frames(); ++number) {
    const std::string_view file = sites.text(sites.frame(number).file);
    if (file.size() > 3 && file[1] == ':' && file[2] == '\\') return true;
  }
  return false;
}

}  // namespace

void add_programs(const Snapshot& snapshot, const std::string& file,
                  std::optional<std::uint32_t> device, RecordedPrograms& recorded) {
  const RecordedSettings settings = recorded_settings(snapshot);
  if (!settings.warning.empty())
    recorded.warnings.push_back(fmt::format("{}: {}", file, settings.warning));
  recorded.torch = std::max(recorded.torch, oldest_torch(snapshot));
  recorded.on_windows |= has_windows_paths(snapshot);
  for (const Trace& trace : snapshot.traces) {
    if (device && trace.device != *device) continue;
    if (has_no_history(trace)) {
      recorded.warnings.push_back(fmt::format(
          "{}: device {} has no history, only what was live when it was taken: there is nothing to "
          "replay. Call torch.cuda.memory._record_memory_history() before the part that matters",
          file, trace.device));
      continue;
    }
    recorded.warnings.insert(recorded.warnings.end(), trace.warnings.begin(),
                             trace.warnings.end());
    if (const Growth found = growth(trace, lifetimes(trace), CallSites(*trace.sites));
        matters(found, trace.live_peak_bytes()))
      recorded.warnings.push_back(fmt::format(
          "{}: memory grows from iteration to iteration, most at {}: no setting helps for long "
          "(tenon explain)",
          file, found.suspects.front().name));
    const bool failed = has_failed_requests(trace);
    AdvisedProgram program;
    program.workload = failed ? &recorded.workloads.emplace_back(with_failed_requests(trace))
                              : &recorded.workloads.emplace_back(trace);
    program.recorded_conf = settings.conf;
    program.recorded_known = settings.known;
    program.recorded_peak_bytes = recorded_reserved_peak(snapshot, trace);
    program.contradiction = contradiction(snapshot, trace, live_peak(trace));
    if (program.recorded_peak_bytes < trace.live_peak_bytes())
      program.recorded_peak_bytes.reset();
    program.times_full = times_full(snapshot, trace);
    program.file = file;
    program.failed = failed;
    program.room = room_at_failure(snapshot, trace);
    recorded.programs.push_back(std::move(program));
  }
}

std::optional<OutsideMemory> outside_at_failure(const std::vector<AdvisedProgram>& programs,
                                                std::uint64_t card_bytes) {
  std::optional<std::uint64_t> most;
  for (const AdvisedProgram& program : programs) {
    if (!program.room || program.room->limited) continue;
    const std::uint64_t room = program.room->bytes();
    if (room > card_bytes || card_bytes - room > card_bytes / 8) continue;
    most = std::max(most.value_or(0), card_bytes - room);
  }
  if (!most) return std::nullopt;
  return OutsideMemory{*most, 0,
                       "the card's memory less what PyTorch held and what was free when the "
                       "recording failed"};
}

void complete_options(AdviceOptions& options, const RecordedPrograms& recorded, std::size_t ranks,
                      std::string_view card) {
  const Card& named = find_card(card);
  if (options.capacity_bytes == 0) options.capacity_bytes = named.memory_bytes;
  if (named.memory_bytes != 0 && options.capacity_bytes > named.memory_bytes)
    throw InvalidArgument(fmt::format("card {} has {}: the capacity, {}, is more; give one of them",
                                      card, format_byte_size(named.memory_bytes),
                                      format_byte_size(options.capacity_bytes)));
  options.torch = assumed_torch(recorded);
  options.on_windows = recorded.on_windows;
  options.outside = outside_memory(named, ranks);
  if (!card.empty()) return;
  if (const auto seen = outside_at_failure(recorded.programs, options.capacity_bytes))
    options.outside = *seen;
}

}  // namespace tenon
