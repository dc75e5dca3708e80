// What a process does together with others: collectives on tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::distributed {

// Bytes on their way between processes.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Lets them move on; true when they are there. Not again after that.
  virtual bool test() = 0;
  // Until they are there. Throws DeviceError where another process does not come.
  virtual void wait() = 0;
};

// A collective that was started. It keeps its tensors alive; none of them may be used before
// wait(). A default-constructed one is done. One that is dropped before wait() leaves its group
// unusable: what remains is to end the processes. Not thread-safe.
class Work {
 public:
  Work() = default;
  Work(std::unique_ptr<Transfer> transfer, std::vector<Tensor> kept, std::function<Work()> finish)
      : transfer_(std::move(transfer)), kept_(std::move(kept)), finish_(std::move(finish)) {}

  // Lets the bytes move while the caller computes. Frees nothing, so that the memory that a program
  // holds does not depend on how fast they are.
  void progress();
  // The results are there afterwards. Harmless the second time. Throws DeviceError.
  void wait();
  // The same work, and `next` after it.
  Work then(std::function<Work()> next) &&;
  // Whether wait() returns at once; progress() makes it so.
  bool has_arrived() const { return transfer_ == nullptr; }
  bool is_pending() const { return transfer_ != nullptr || finish_ != nullptr; }

 private:
  std::unique_ptr<Transfer> transfer_;  // null: there
  std::vector<Tensor> kept_;
  std::function<Work()> finish_;  // what is left to do with what came; may start more
};

// The ranks 0 to size() - 1, each a process. Every rank calls the same functions in the same order,
// with tensors of the same size and dtype. Tensors are contiguous; any dtype is moved, and any that
// operators compute with is added. Tensors that the host does not reach go through buffers of its
// memory. Wrong tensors throw InvalidArgument, other processes' failures DeviceError.
//
// start_...() returns at once; the function without it waits, too. Memory events of the buffers
// have the phase "communication".
//
// Note [Fixed tree]. Sums are added by the receiver: rank 0 to rank 1, 2 to 3, then these pairs,
// and so on, whatever order they come in. So the same ranks give the same bits under every MPI, and
// doubling the ranks while halving what each has summed up by the same tree gives them, too.
//
// One thread uses a group.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Payload that this rank has handed over for other ranks; of a broadcast, each copy counts at its
  // root. With n ranks and b bytes of a tensor: all_reduce 2 (n - 1) / n b, reduce_scatter and
  // all_to_all (n - 1) / n of the input, all_gather n - 1 times the input.
  std::uint64_t bytes_sent() const { return bytes_sent_; }

  // The ranks that give the same color form a new group, in the order of key, then of rank.
  virtual std::shared_ptr<ProcessGroup> split(int color, int key) = 0;

  // The sum over all ranks, at all of them.
  Work start_all_reduce(const Tensor& tensor);
  // `in` is cut into size() equal pieces; rank r gets the sum of the pieces r. `out` may be that
  // piece of `in`.
  Work start_reduce_scatter(const Tensor& out, const Tensor& in);
  // The tensors of all ranks one after another. `in` may be its own place in `out`.
  Work start_all_gather(const Tensor& out, const Tensor& in);
  // Piece r of `in` goes to rank r; piece r of `out` comes from it.
  Work start_all_to_all(const Tensor& out, const Tensor& in);
  // What the root has, at all ranks.
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
  // Until every rank has come.
  void barrier() { gather_texts(""); }

 protected:
  ProcessGroup(int rank, int size) : rank_(rank), size_(size) {}

  // The same on bytes; null where they are there at once. `bytes` is what goes from one rank to
  // another; what a rank sends itself is copied, too.
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
