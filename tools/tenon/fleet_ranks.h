// The processes that tenon fleet is divided among under mpirun.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tenon::command {

// Hands out jobs, each to one rank. Every rank calls begin(), next() until it gives none, and
// leave(); rank 0 calls serve() every few milliseconds meanwhile, since it answers the others, and
// wait_for_all() before it writes the report. Failures of other ranks throw DeviceError.
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
  // At rank 0, until every other rank is in leave().
  virtual void wait_for_all() = 0;
  // Waits for rank 0 and ends the group, whatever the process's status will be. Nothing may follow.
  virtual void leave() = 0;

 protected:
  FleetRanks() = default;
};

// All processes that the launcher started. Of tenon-training alone. Throws as join_ranks.
std::unique_ptr<FleetRanks> join_fleet();

}  // namespace tenon::command
