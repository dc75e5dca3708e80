// Where the build has no libtorch.
#include "peer_steps.h"

namespace tenon::bench {

double torch_chain_ns(int, int) { return 0; }
double torch_step_ns(int, int, int, int) { return 0; }

}  // namespace tenon::bench
