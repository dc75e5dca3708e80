// Process groups over MPI.
#pragma once

#include <memory>
#include <string>

#include "tenon/distributed/process_group.h"

namespace tenon::distributed {

// MPI from its start to its end, at most once in a process: the first use of it in the process, by
// the thread that uses its groups. Other threads may compute meanwhile.
//
// A rank that waits longer than the timeout for others asks who else waits; DeviceError names the
// ranks that do not answer. So the timeout must be longer than ranks can be apart: the difference
// of their steps, never the length of one.
class MpiSession {
 public:
  // Throws InvalidArgument for a timeout that is not above 0, DeviceError where MPI does not start
  // or has no support for threads.
  explicit MpiSession(double timeout_seconds);
  // Waits for all ranks, unless an exception is on its way: then abort() should follow.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // All processes that the launcher started.
  std::shared_ptr<ProcessGroup> world() const { return world_; }
  // TENON_RANK_TIMEOUT in seconds, or 6: a rank that hangs ends a run within 10 s. Throws
  // InvalidArgument where it is no number above 0.
  static double timeout_from_environment();
  // The implementation's own words for itself, one line.
  static std::string library();
  // Ends every process of the world, this one with the status.
  [[noreturn]] static void abort(int status);

 private:
  std::shared_ptr<ProcessGroup> world_;
  const int exceptions_;
};

}  // namespace tenon::distributed
