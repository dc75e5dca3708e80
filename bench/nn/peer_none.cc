// Where the build found no PyTorch.
#include "peer.h"

#include "../torch_name.h"

namespace tenon::bench {

std::string torch_name() { return {}; }
std::unique_ptr<Peer> make_peer(const Case&, const std::vector<nn::NamedTensor>&, int) {
  return nullptr;
}
std::uint64_t peer_peak_of(const Case&, const std::vector<nn::NamedTensor>&, int) { return 0; }

}  // namespace tenon::bench
