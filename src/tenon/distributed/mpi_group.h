// Process groups over MPI.
#pragma once

#include <memory>
#include <string>

#include "tenon/distributed/process_group.h"

namespace tenon::distributed {

// MPI_Init to MPI_Finalize: at most one in a process. The thread that makes it is the one that uses
// its groups; other threads may compute meanwhile. A thread of the session lets MPI move data while
// they do.
//
// A rank that waits longer than the timeout asks the other ranks whether they wait too. DeviceError
// names the ranks that do not answer. So the timeout must be longer than the time by which one rank
// can arrive after another; it may be shorter than a step.
class MpiSession {
 public:
  // Throws InvalidArgument for a timeout that is not above 0, DeviceError where MPI does not start
  // or has no support for threads.
  explicit MpiSession(double timeout_seconds);
  // Waits for all ranks, except while an exception propagates: then abort() should follow.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // All processes that the launcher started.
  std::shared_ptr<ProcessGroup> world() const { return world_; }
  // TENON_RANK_TIMEOUT in seconds; 6 by default, so that a rank that hangs ends a run within 10 s.
  // Throws InvalidArgument where it is not a number above 0.
  static double timeout_from_environment();
  // Name and version of the MPI implementation, as it reports them: one line.
  static std::string library();
  // Whether MPI has been started, also by a session whose construction failed, and not finalised.
  static bool is_underway();
  // Ends all processes, this one with the status.
  [[noreturn]] static void abort(int status);

 private:
  std::shared_ptr<ProcessGroup> world_;
  const int exceptions_;
};

}  // namespace tenon::distributed
