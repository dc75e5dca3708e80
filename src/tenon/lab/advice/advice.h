// Which settings recorded programs should have run with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/lab/advice/outside_memory.h"
#include "tenon/lab/advice/torch_settings.h"
#include "tenon/lab/failed_requests.h"
#include "tenon/lab/workload.h"

namespace tenon {

// What the advice is for.
struct AdviceOptions {
  // Of the card; 0: as a failure in a recording says, if any. Where a limit failed the request, the
  // recording says only what that limit was at least, and there is no capacity.
  std::uint64_t capacity_bytes = 0;
  // Of the card's memory, not PyTorch's allocator's; none: outside_memory() of an unknown card.
  std::optional<OutsideMemory> outside;
  std::uint64_t lag_ns = 5'000'000;  // for driver stalls alone
  TorchVersion torch = kAssumedTorch;
  bool on_windows = false;           // there PyTorch has no expandable segments
  int threads = 0;                   // 0: one for each core; the advice does not depend on it
  double effort = 1;                 // how many settings are tried
};

// One device's recording: a rank of a job, or a device of a process.
struct AdvisedProgram {
  const Workload* workload = nullptr;
  std::string recorded_conf;                         // what it ran with
  bool recorded_known = false;                       // else PyTorch's defaults are assumed
  std::optional<std::uint64_t> recorded_peak_bytes;  // what PyTorch held then, where it is known
  std::string file;                                  // for what is printed
  // Where it ran out of memory: the workload serves the request that failed (failed_requests.h).
  bool failed = false;
  std::optional<RoomAtFailure> room = std::nullopt;
  std::string contradiction = {};  // a sentence: contradiction() in recorded_settings.h
  // How often it found the device full (times_full()). Then what PyTorch held was what there was,
  // and settings may reserve more without a limit.
  std::size_t times_full = 0;
};

// What is said of a program.
struct ProgramFacts {
  std::string name;
  std::string file;
  std::uint64_t events = 0;
  std::uint64_t live_peak_bytes = 0;
  std::string recorded_conf;
  bool recorded_known = false;
  std::optional<std::uint64_t> recorded_peak_bytes;
  bool failed = false;
  std::optional<RoomAtFailure> room;
  std::string contradiction;
  std::size_t times_full = 0;
  std::size_t times_given_back = 0;  // idle memory, by empty_cache() or by sleep; replays do so too
};

// What one program would have needed with some settings. Each figure is of a replay of its own.
struct AdviceFigures {
  std::uint64_t reserved_peak_bytes = kNever;  // without a capacity limit
  std::uint64_t min_capacity_bytes = kNever;   // the smallest device, by search_capacity
  std::uint64_t driver_stall_ns = 0;           // without a capacity limit
  std::optional<bool> fits;                    // within the capacity, where one was given

  // No memory is enough: a request that no policy serves.
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
};

// Some settings over all programs.
struct SettingsFigures {
  std::string conf;                      // empty: PyTorch's defaults
  std::vector<AdviceFigures> programs;   // in the order given
  bool fits() const;                     // all of them, or nothing to fit into
  // The program that needs the largest device.
  std::size_t worst() const;
  const AdviceFigures& at_worst() const { return programs[worst()]; }
};

// What the advice comes to.
enum class AdviceOutcome : std::uint8_t {
  kNothingNeeded,  // what it ran with is as good, or fits
  kRaiseLimit,     // the same, except that a limit below the card's memory failed a request
  kSet,            // `best` needs less, or fits where the recording's settings do not
  kNothingFits,    // no settings that were tried fit into the capacity; `best` comes closest
  kHopeless,       // a live peak exceeds the capacity: no allocator and no settings can help
};

// The answer, with the figures it stands on.
struct Advice {
  AdviceOutcome outcome = AdviceOutcome::kNothingNeeded;
  std::vector<ProgramFacts> programs;
  TorchVersion torch;
  bool on_windows = false;
  OutsideMemory outside;
  std::uint64_t card_bytes = 0;       // 0: not known
  std::uint64_t capacity_bytes = 0;   // what of it PyTorch's allocator may have
  std::uint64_t live_peak_bytes = 0;  // the largest of all programs
  SettingsFigures recorded;           // each program's own settings; `conf` of the first
  SettingsFigures defaults;
  std::optional<SettingsFigures> expandable;  // where that PyTorch has it
  // The one recommendation; the recording's own settings where nothing is needed. For no program
  // worse than what it ran with, in either figure. Where the recording's settings do not fit into
  // the capacity, only the smallest device is compared.
  SettingsFigures best;
  std::size_t settings_tried = 0;
  // A recording failed, and its replay with the settings that it ran with does not.
  bool failure_not_replayed = false;

  // The failure of a limit at which PyTorch held most; nothing where no limit failed a request.
  std::optional<RoomAtFailure> failure_of_limit() const;
};

// Called between pieces of work, one call at a time.
using AdviceProgress = std::function<void(std::string_view step)>;

// Replays the programs over PyTorch's settings on several threads, by the rules that gave PyTorch's
// own figures. It tries a coarse list, then goes from the best of it step by step. A replay ends as
// soon as it is worse than what is to be beaten. What is tried depends on the traces and `effort`
// alone, so the advice is the same on every machine. O(events) for each replay, with
// `settings_tried` settings and the steps of a capacity search for each. Requires: at least one
// program. Throws InvalidArgument for a card that has no more than what is outside PyTorch's
// allocator.
Advice advise(const std::vector<AdvisedProgram>& programs, const AdviceOptions& options,
              const AdviceProgress& progress = {});
// Of one program whose settings are not known.
Advice advise(const Workload& workload, const AdviceOptions& options,
              const AdviceProgress& progress = {});

}  // namespace tenon
