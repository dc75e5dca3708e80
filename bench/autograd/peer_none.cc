// Where the build has no PyTorch.
#include "../torch_name.h"
#include "peer_steps.h"

namespace tenon::bench {

std::string torch_name() { return {}; }
double torch_chain_ns(int, int, int) { return 0; }
double torch_step_ns(int, int, int, int, int) { return 0; }

}  // namespace tenon::bench
