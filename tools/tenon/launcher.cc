#include "launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <initializer_list>
#include <thread>

#include "commands.h"
#include "process.h"

namespace tenon::command {
namespace {

int number_of(std::initializer_list<const char*> names, int least) {
  for (const char* name : names)
    if (const char* text = std::getenv(name)) return std::max(least, std::atoi(text));
  return least;
}

}  // namespace

// Of Open MPI, MPICH and srun.
int launched_ranks() {
  return number_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}, 1);
}

int launched_ranks_here() {
  return number_of({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}, 1);
}

int launched_rank() {
  return number_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}, 0);
}

void report_as_rank(int rank) {
  set_reporting(fmt::format("rank {}: ", rank), [rank] {
    constexpr int kStepMs = 500, kMostMs = 2000;
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(kMostMs, kStepMs * rank)));
  });
}

void report_as_first_rank() {
  set_reporting("", [] {
    if (launched_rank() > 0) std::_Exit(kBadInput);
  });
}

}  // namespace tenon::command
