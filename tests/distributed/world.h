// The ranks that a test program runs as.
#pragma once

#include <memory>

#include "tenon/distributed/mpi_group.h"

namespace tenon::distributed::testing {

extern std::shared_ptr<ProcessGroup> world;

}  // namespace tenon::distributed::testing
