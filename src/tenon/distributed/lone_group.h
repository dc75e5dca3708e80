// One simulated rank of a group.
#pragma once

#include "tenon/distributed/process_group.h"

namespace tenon::distributed {

// Allocates and counts what rank `rank` of `size` does. It receives copies of its own data in the
// place of other ranks' data. With one rank it is a complete group. With more it tells a rank's
// memory and traffic; sums are meaningless. send() does nothing, receive() gives zeros.
class LoneGroup final : public ProcessGroup {
 public:
  // Throws InvalidArgument unless 0 <= rank < size.
  LoneGroup(int rank, int size);
  // A group of the same size and rank, as if all ranks gave this color.
  std::shared_ptr<ProcessGroup> split(int color, int key) override;

 private:
  std::unique_ptr<Transfer> all_to_all_bytes(const void* in, void* out, std::size_t bytes) override;
  std::unique_ptr<Transfer> all_gather_bytes(const void* in, void* out, std::size_t bytes) override;
  std::unique_ptr<Transfer> broadcast_bytes(void* data, std::size_t bytes, int root) override;
  std::unique_ptr<Transfer> send_bytes(const void* data, std::size_t bytes, int to) override;
  std::unique_ptr<Transfer> receive_bytes(void* data, std::size_t bytes, int from) override;
};

}  // namespace tenon::distributed
