// Process groups: collectives on tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::distributed {

// A transfer of bytes between processes.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Makes progress; true when it is complete. Must not be called after that.
  virtual bool test() = 0;
  // Until it is complete. Throws DeviceError where another process does not take part.
  virtual void wait() = 0;
};

// A collective that was started. It keeps its tensors alive; they must not be used before wait().
// A default-constructed one is complete. Where one is destroyed before wait(), its group is
// unusable and the processes must end. Not thread-safe.
class Work {
 public:
  Work() = default;
  Work(std::unique_ptr<Transfer> transfer, std::vector<Tensor> kept, std::function<Work()> finish)
      : transfer_(std::move(transfer)), kept_(std::move(kept)), finish_(std::move(finish)) {}

  // Makes progress while the caller computes. It frees nothing, so the memory in use does not
  // depend on the speed of the transfer.
  void progress();
  // Until the results are there. A second call does nothing. Throws DeviceError.
  void wait();
  // This work, followed by `next`.
  Work then(std::function<Work()> next) &&;
  // Whether wait() returns at once; progress() makes it so.
  bool has_arrived() const { return transfer_ == nullptr; }
  bool is_pending() const { return transfer_ != nullptr || finish_ != nullptr; }

 private:
  std::unique_ptr<Transfer> transfer_;  // null: complete
  std::vector<Tensor> kept_;
  std::function<Work()> finish_;  // runs after the transfer; may start another one
};

// Ranks 0 to size() - 1; each is a process. All ranks call the same functions in the same order,
// with contiguous tensors of the same size and dtype. Any dtype can be moved; sums need one that
// operators add. Tensors in memory that the host cannot read are copied through host buffers. A
// wrong tensor throws InvalidArgument, a failure of another process DeviceError.
//
// start_...() returns at once; the function without the prefix also waits. Memory events of the
// buffers have the phase "communication".
//
// Note [Fixed tree]. The receiver adds the ranks' data in a fixed order: 0 + 1, 2 + 3, ..., then
// these pairs, and so on. So the same ranks give the same bits with every MPI. 2n ranks give the
// bits of n ranks, where each of the n adds its two halves in the same way before.
//
// Only one thread may use a group.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Bytes of payload from this rank to other ranks so far; the root of a broadcast counts each
  // copy. With n ranks and a tensor of b bytes: all_reduce 2 (n - 1) / n b, reduce_scatter and
  // all_to_all (n - 1) / n of the input, all_gather n - 1 times the input.
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  // Seconds that wait() of transfers has taken in this process so far, of all groups.
  virtual double waited_seconds() const { return 0; }

  // Ranks with the same color form a new group, ordered by key, then by rank.
  virtual std::shared_ptr<ProcessGroup> split(int color, int key) = 0;

  // All ranks get the sum over all ranks.
  Work start_all_reduce(const Tensor& tensor);
  // `in` is cut into size() equal pieces; rank r gets the sum of the pieces r. `out` may be that
  // piece of `in`. Where `in` is f16 or bf16, `out` may be f32: the sums are of f32 then.
  Work start_reduce_scatter(const Tensor& out, const Tensor& in);
  // All ranks get the tensors of all, in the order of ranks. `in` may be its piece of `out`.
  Work start_all_gather(const Tensor& out, const Tensor& in);
  // Piece r of `in` goes to rank r; piece r of `out` comes from it.
  Work start_all_to_all(const Tensor& out, const Tensor& in);
  // All ranks get the root's tensor.
  Work start_broadcast(const Tensor& tensor, int root);
  // From one rank to another. Messages between two ranks arrive in the order in which they start.
  Work start_send(const Tensor& tensor, int to);
  Work start_receive(const Tensor& tensor, int from);

  void all_reduce(const Tensor& tensor) { start_all_reduce(tensor).wait(); }
  void reduce_scatter(const Tensor& out, const Tensor& in) {
    start_reduce_scatter(out, in).wait();
  }
  void all_gather(const Tensor& out, const Tensor& in) { start_all_gather(out, in).wait(); }
  void all_to_all(const Tensor& out, const Tensor& in) { start_all_to_all(out, in).wait(); }
  void broadcast(const Tensor& tensor, int root) { start_broadcast(tensor, root).wait(); }
  void send(const Tensor& tensor, int to) { start_send(tensor, to).wait(); }
  void receive(const Tensor& tensor, int from) { start_receive(tensor, from).wait(); }

  // Every rank's text, at every rank. Blocks.
  std::vector<std::string> gather_texts(const std::string& text);
  // Until all ranks have called it.
  void barrier() { gather_texts(""); }

 protected:
  ProcessGroup(int rank, int size) : rank_(rank), size_(size) {}

  // The same for bytes; null where it is complete at once. `bytes` go from each rank to each other
  // one; a rank's data for itself are copied.
  virtual std::unique_ptr<Transfer> all_to_all_bytes(const void* in, void* out,
                                                     std::size_t bytes) = 0;
  virtual std::unique_ptr<Transfer> all_gather_bytes(const void* in, void* out,
                                                     std::size_t bytes) = 0;
  virtual std::unique_ptr<Transfer> broadcast_bytes(void* data, std::size_t bytes, int root) = 0;
  virtual std::unique_ptr<Transfer> send_bytes(const void* data, std::size_t bytes, int to) = 0;
  virtual std::unique_ptr<Transfer> receive_bytes(void* data, std::size_t bytes, int from) = 0;

 private:
  Work move_one(const char* what, const Tensor& tensor, int peer, bool reads, bool writes,
                const std::function<std::unique_ptr<Transfer>(void*, std::size_t)>& start);
  void check_peer(const char* what, int peer) const;
  std::uint64_t others() const { return static_cast<std::uint64_t>(size_) - 1; }

  const int rank_;
  const int size_;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace tenon::distributed
