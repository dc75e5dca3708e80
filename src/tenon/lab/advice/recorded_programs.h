// The recordings of snapshots, as advise() takes them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/lab/advice/advice.h"
#include "tenon/trace/snapshot.h"

namespace tenon {

struct RecordedPrograms {
  std::vector<AdvisedProgram> programs;
  std::deque<Workload> workloads;     // of the programs; they stay where they are
  std::vector<std::string> warnings;  // one line each
  std::optional<TorchVersion> torch;  // the oldest PyTorch that writes these files
  bool on_windows = false;            // by the paths in its stacks
};

// Adds the traces of a snapshot (of one device, where one is given), each with the settings it ran
// with. Requests that failed are served: failed_requests.h. Traces without history get a warning
// instead.
void add_programs(const Snapshot& snapshot, const std::string& file,
                  std::optional<std::uint32_t> device, RecordedPrograms& recorded);

// The version to assume: what the files tell, else kAssumedTorch.
inline TorchVersion assumed_torch(const RecordedPrograms& recorded) {
  return recorded.torch.value_or(kAssumedTorch);
}

// What the card holds beside PyTorch's allocator: its memory less what PyTorch held and what was
// free when a request failed. Nothing where no recording says, where a limit failed the request, or
// where more than an eighth of the card would be missing (it ran on another card).
std::optional<OutsideMemory> outside_at_failure(const std::vector<AdvisedProgram>& programs,
                                                std::uint64_t card_bytes);

// Sets what follows from the recordings of a job of so many ranks: the version of PyTorch, and the
// memory outside its allocator, as a failure tells or else as the named card's (Card). The card's
// memory is options.capacity_bytes, or if that is 0 the named card's. The answer is then that of
// `tenon advise`. Throws InvalidArgument for a card that is not known or has less memory.
void complete_options(AdviceOptions& options, const RecordedPrograms& recorded, std::size_t ranks,
                      std::string_view card = "");

}  // namespace tenon
