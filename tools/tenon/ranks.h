// The processes that a run is divided among.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/distributed/process_group.h"

namespace tenon::command {

// Starts MPI, once, and returns the group of all ranks. Without a launcher, and in a build without
// MPI, it is a group of this process alone. A later call returns the same group. From then on
// messages name the rank. Throws InvalidArgument for several processes in a build without MPI, and
// where TENON_RANK_TIMEOUT is not a number of seconds.
std::shared_ptr<distributed::ProcessGroup> join_ranks();

// After how many seconds a rank that is not heard of counts as hanging: TENON_RANK_TIMEOUT. Throws
// InvalidArgument where that is not a number of seconds.
double rank_timeout();

// Before a failure is reported: joins the ranks that a launcher started, so that one of them
// reports it and ends the others. Does nothing where this build or this process cannot.
void join_to_report();

// Throws InvalidArgument, the same on all ranks, where a rank's version, subcommand or an entry of
// its setup is not rank 0's. The message names the first that differs, and both values.
void require_same(distributed::ProcessGroup& group, const std::string& subcommand,
                  std::vector<std::pair<std::string, std::string>> setup);

// The end of the process: finalises MPI, or, where this rank has failed, ends the others. Returns
// the status.
int leave_ranks(int status);

}  // namespace tenon::command
