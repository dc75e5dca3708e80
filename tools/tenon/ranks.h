// The processes that a run is divided among.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/distributed/process_group.h"

namespace tenon::command {

// Starts MPI, once, and gives all of its ranks; without a launcher, and in a build without MPI, a
// group of this process alone. From then on messages name the rank. Throws InvalidArgument where
// there are more processes and no MPI, or TENON_RANK_TIMEOUT is no number of seconds.
std::shared_ptr<distributed::ProcessGroup> join_ranks();

// Throws InvalidArgument, on every rank the same, where a rank has something else than rank 0:
// names the first such entry and both values.
void require_same(distributed::ProcessGroup& group,
                  const std::vector<std::pair<std::string, std::string>>& setup);

// At the end of the process: all ranks together, or, where this one failed, ends the others. Of
// ranks that fail at once, the lowest reports. Returns the status.
int leave_ranks(int status);

}  // namespace tenon::command
