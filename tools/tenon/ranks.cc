#include "ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "commands.h"
#include "launcher.h"
#include "process.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/base/version.h"
#include "tenon/distributed/lone_group.h"
#if TENON_HAS_MPI
#include "tenon/distributed/mpi_group.h"
#endif

namespace tenon::command {
namespace {

#if TENON_HAS_MPI
std::unique_ptr<distributed::MpiSession>& session() {
  static auto& joined = *new std::unique_ptr<distributed::MpiSession>;
  return joined;
}
#endif

// The group has ended; MPI starts once in a process.
bool& have_left() {
  static bool left = false;
  return left;
}

}  // namespace

std::shared_ptr<distributed::ProcessGroup> join_ranks() {
  const int here = launched_ranks_here();
  if (here > 1 && std::getenv("TENON_NUM_THREADS") == nullptr)
    set_num_threads(std::max(1, num_threads() / here));
#if TENON_HAS_MPI
  if (session() != nullptr) return session()->world();
  if (launched_ranks() > 1) {
    std::string mistake;  // told when the ranks have joined
    double timeout = 1;
    try {
      timeout = rank_timeout();
    } catch (const InvalidArgument& error) {
      mistake = error.what();
    }
    session() = std::make_unique<distributed::MpiSession>(timeout);
    std::shared_ptr<distributed::ProcessGroup> world = session()->world();
    if (world->size() != launched_ranks()) {
      report_as_first_rank();
      throw InvalidArgument(fmt::format(
          "{} processes were started, and {} sees {}: start them by the mpirun of that MPI",
          launched_ranks(), distributed::MpiSession::library(), world->size()));
    }
    report_as_rank(world->rank());
    if (!mistake.empty()) throw InvalidArgument(mistake);
    return world;
  }
#else
  if (launched_ranks() > 1) {
    report_as_first_rank();
    throw InvalidArgument(fmt::format("{} processes were started, and this tenon was built without "
                                      "MPI: configure it with -DTENON_MPI=ON",
                                      launched_ranks()));
  }
#endif
  return std::make_shared<distributed::LoneGroup>(0, 1);
}

double rank_timeout() {
#if TENON_HAS_MPI
  return distributed::MpiSession::timeout_from_environment();
#else
  return std::numeric_limits<double>::infinity();
#endif
}

void join_to_report() {
  if (launched_ranks() == 1 || have_left()) return;
  try {
    join_ranks();
  } catch (const std::exception&) {  // then each reports its own, or the first one does
  }
}

void require_same(distributed::ProcessGroup& group, const std::string& subcommand,
                  std::vector<std::pair<std::string, std::string>> setup) {
  setup.insert(setup.begin(), {{"tenon", TENON_VERSION}, {"the subcommand", subcommand}});
  // In a form for any bytes: names of files need not be UTF-8.
  std::string mine;
  nlohmann::json::to_cbor(setup, mine);
  const std::vector<std::string> all = group.gather_texts(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    // All find it, and rank 0 reports it and ends the others, which may take a while.
    if (group.rank() > 0) std::this_thread::sleep_for(std::chrono::seconds(3));
    const auto first = nlohmann::json::from_cbor(all[0]);
    const auto other = nlohmann::json::from_cbor(all[rank]);
    for (std::size_t i = 0; i < first.size() && i < other.size(); ++i)
      if (first[i] != other[i])
        throw InvalidArgument(fmt::format(
            "ranks must run the same: {} of rank {} is {}, of rank 0 {}",
            first[i][0].get<std::string>(), rank, other[i][1].get<std::string>(),
            first[i][1].get<std::string>()));
    throw InvalidArgument(fmt::format("rank {} is another version of tenon than rank 0", rank));
  }
}

int leave_ranks(int status) {
#if TENON_HAS_MPI
  if (!distributed::MpiSession::is_underway()) return status;
  if (status != kSuccess && status < kSignalled) {
    std::fflush(nullptr);
    // MPICH's launcher may drop lines that it has not passed on.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    distributed::MpiSession::abort(status);
  }
  session().reset();
  have_left() = true;
#endif
  return status;
}

}  // namespace tenon::command
