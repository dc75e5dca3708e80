// Where the build found no libtorch.
#include "peer.h"

namespace tenon::bench {

std::unique_ptr<Peer> make_peer(const Case&, const std::vector<nn::NamedTensor>&, int) {
  return nullptr;
}
std::uint64_t peer_peak_of(const Case&, const std::vector<nn::NamedTensor>&, int) { return 0; }

}  // namespace tenon::bench
