// One rank of a group whose other ranks are not there.
#pragma once

#include "tenon/distributed/process_group.h"

namespace tenon::distributed {

// Does and allocates what rank `rank` of `size` does; what would come from another rank is what
// this one would send it. With one rank it is a whole group; with more it says what a rank's memory
// and traffic will be, and its sums mean nothing. send() goes nowhere, receive() leaves zeros.
class LoneGroup final : public ProcessGroup {
 public:
  // Throws InvalidArgument unless 0 <= rank < size.
  LoneGroup(int rank, int size);
  // A group of the same kind, as if every rank gave this color.
  std::shared_ptr<ProcessGroup> split(int color, int key) override;

 private:
  std::unique_ptr<Transfer> all_to_all_bytes(const void* in, void* out, std::size_t bytes) override;
  std::unique_ptr<Transfer> all_gather_bytes(const void* in, void* out, std::size_t bytes) override;
  std::unique_ptr<Transfer> broadcast_bytes(void* data, std::size_t bytes, int root) override;
  std::unique_ptr<Transfer> send_bytes(const void* data, std::size_t bytes, int to) override;
  std::unique_ptr<Transfer> receive_bytes(void* data, std::size_t bytes, int from) override;
};

}  // namespace tenon::distributed
