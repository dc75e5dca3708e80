#include "ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "commands.h"
#include "launcher.h"
#include "process.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/distributed/lone_group.h"
#if TENON_HAS_MPI
#include "tenon/distributed/mpi_group.h"
#endif

namespace tenon::command {
namespace {

#if TENON_HAS_MPI
struct Joined {
  std::unique_ptr<distributed::MpiSession> session;
  int rank = 0;
};
Joined& joined() {
  static auto& all = *new Joined;
  return all;
}

// Runs before a failure is reported, so that of several ranks that fail, only the lowest reports.
void wait_for_lower_ranks() {
  constexpr int kStepMs = 500, kMostMs = 2000;
  std::this_thread::sleep_for(
      std::chrono::milliseconds(std::min(kMostMs, kStepMs * joined().rank)));
}
#endif

}  // namespace

std::shared_ptr<distributed::ProcessGroup> join_ranks() {
  const int here = launched_ranks_here();
  if (here > 1 && std::getenv("TENON_NUM_THREADS") == nullptr)
    set_num_threads(std::max(1, num_threads() / here));
#if TENON_HAS_MPI
  if (joined().session != nullptr) return joined().session->world();
  if (launched_ranks() > 1) {
    joined().session = std::make_unique<distributed::MpiSession>(
        distributed::MpiSession::timeout_from_environment());
    std::shared_ptr<distributed::ProcessGroup> world = joined().session->world();
    joined().rank = world->rank();
    if (world->size() != launched_ranks())
      throw InvalidArgument(fmt::format(
          "{} processes were started, and {} sees {}: start them by the mpirun of that MPI",
          launched_ranks(), distributed::MpiSession::library(), world->size()));
    set_reporting(fmt::format("rank {}: ", world->rank()), wait_for_lower_ranks);
    return world;
  }
#else
  if (launched_ranks() > 1)
    throw InvalidArgument(fmt::format("{} processes were started, and this tenon was built without "
                                      "MPI: configure it with -DTENON_MPI=ON",
                                      launched_ranks()));
#endif
  return std::make_shared<distributed::LoneGroup>(0, 1);
}

void join_to_report() {
#if TENON_HAS_MPI
  if (launched_ranks() == 1) return;
  try {
    join_ranks();
  } catch (const std::exception&) {  // then each reports its own
  }
#endif
}

void require_same(distributed::ProcessGroup& group,
                  const std::vector<std::pair<std::string, std::string>>& setup) {
  // In a form for any bytes: names of files need not be UTF-8.
  std::string mine;
  nlohmann::json::to_cbor(setup, mine);
  const std::vector<std::string> all = group.gather_texts(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
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
  if (joined().session == nullptr) return status;
  if (status != kSuccess && status < kSignalled) {
    std::fflush(nullptr);
    distributed::MpiSession::abort(status);
  }
  joined().session.reset();
#endif
  return status;
}

}  // namespace tenon::command
