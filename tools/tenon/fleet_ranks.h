// The processes that tenon fleet is divided among under mpirun.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tenon::command {

// Hands out jobs, each to one rank. Every rank calls begin(), next() until it gives none, wait()
// and leave(). Until wait() it calls serve(), once in each period(); rank 0 does so until leave().
// Failures of other ranks throw DeviceError.
class FleetRanks {
 public:
  virtual ~FleetRanks() = default;
  FleetRanks(const FleetRanks&) = delete;
  FleetRanks& operator=(const FleetRanks&) = delete;

  // Whether this is rank 0, which writes the report.
  virtual bool reports() const = 0;
  // Throws InvalidArgument, on every rank the same, where a rank has another entry of `setup`.
  virtual void begin(std::size_t jobs,
                     const std::vector<std::pair<std::string, std::string>>& setup) = 0;
  // The lowest job that no rank has; nothing: there are no more.
  virtual std::optional<std::size_t> next() = 0;
  virtual void serve() = 0;
  // Short at rank 0, since it answers the others.
  virtual std::chrono::milliseconds period() const = 0;
  // Rank 0: until all ranks are done. Other ranks: until rank 0 leaves.
  virtual void wait() = 0;
  // Ends the group, whatever the process's status will be.
  virtual void leave() = 0;

 protected:
  FleetRanks() = default;
};

// All processes that the launcher started. Of tenon-training alone. Throws as join_ranks.
std::unique_ptr<FleetRanks> join_fleet();

}  // namespace tenon::command
