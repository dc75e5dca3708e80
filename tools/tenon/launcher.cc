#include "launcher.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

namespace tenon::command {
namespace {

int number_of(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* text = std::getenv(name)) return std::max(1, std::atoi(text));
  return 1;
}

}  // namespace

// Of Open MPI, MPICH and srun.
int launched_ranks() {
  return number_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"});
}

int launched_ranks_here() { return number_of({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}); }

}  // namespace tenon::command
