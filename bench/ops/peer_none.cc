// Where the build found no PyTorch.
#include "../torch_name.h"
#include "peer.h"

namespace tenon::bench {

std::string torch_name() { return {}; }
Call peer_call(const std::string&, const std::vector<Tensor>&) { return {}; }
Call peer_gradients(const std::string&, const std::vector<Tensor>&, const std::vector<bool>&) {
  return {};
}
void set_peer_threads(int) {}

}  // namespace tenon::bench
