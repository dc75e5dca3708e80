// One rank of a distributed program, or one program: what a report needs of its snapshot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/explain/explain.h"
#include "tenon/lab/ranks/memory_picture.h"
#include "tenon/trace/snapshot.h"

namespace tenon {

// Bytes of one kind at a rank's peak: a call site, or a size where the recording has no stacks.
struct SignatureEntry {
  std::uint64_t key = 0;
  std::uint64_t bytes = 0;
};

struct Rank {
  std::string name;  // "rank 3"; "train.pickle"; "train.pickle, device 1"
  std::string path;
  DeviceExplanation device;
  std::uint64_t needed_bytes = 0;  // the live peak, with each request that failed served
  MemoryPicture picture;
  std::vector<SignatureEntry> signature;  // by key
  std::int64_t start_us = 0;
  bool has_stacks = false;

  bool failed() const { return device.failure_count > 0; }
};

// A file that is no part of the answer, and why.
struct UnreadRank {
  std::string path;
  std::string reason;
};

// One for each device of the snapshot with events. The snapshot is not needed afterwards.
// O(events log events).
std::vector<Rank> ranks_of(const Snapshot& snapshot, const std::string& path,
                           const ExplainOptions& options);

// Names ranks by the only number in which their paths differ ("run/rank_12.pickle" is rank 12) and
// puts them in its order; where there is none, by their files.
void name_ranks(std::vector<Rank>& ranks);

}  // namespace tenon
