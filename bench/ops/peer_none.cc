// Where the build found no libtorch.
#include "peer.h"

namespace tenon::bench {

double peer_ns(const std::string&, const std::vector<Tensor>&, int) { return 0; }

}  // namespace tenon::bench
