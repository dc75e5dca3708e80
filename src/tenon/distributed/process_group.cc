#include "tenon/distributed/process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tenon/autograd/grad_mode.h"
#include "tenon/base/error.h"
#include "tenon/distributed/tree_sum.h"
#include "tenon/memory/tag.h"
#include "tenon/ops/binary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/host_access.h"

namespace tenon::distributed {
namespace {

void check_contiguous(const char* what, const Tensor& tensor) {
  if (!tensor.is_contiguous())
    throw InvalidArgument(fmt::format("{}: a tensor of shape {} that is not contiguous; "
                                      "contiguous() makes it so",
                                      what, to_string(tensor.sizes())));
}

// `whole` has `count` times the elements of `piece`, and its dtype or, with `widens`, 16 bit where
// `piece` has f32.
void check_pieces(const char* what, const Tensor& whole, const Tensor& piece, int count,
                  bool widens = false) {
  check_contiguous(what, whole);
  check_contiguous(what, piece);
  const bool widened = widens && piece.dtype() == DType::kF32 &&
                       (whole.dtype() == DType::kF16 || whole.dtype() == DType::kBF16);
  if ((whole.dtype() != piece.dtype() && !widened) || whole.device() != piece.device() ||
      whole.numel() != piece.numel() * count)
    throw InvalidArgument(fmt::format(
        "{}: {} elements of {} on {} and {} of {} on {}; with {} ranks the first must be {} times "
        "the second",
        what, whole.numel(), dtype_name(whole.dtype()), to_string(whole.device()), piece.numel(),
        dtype_name(piece.dtype()), to_string(piece.device()), count, count));
}

Tensor buffer(std::int64_t elements, DType dtype, Device device = {}) {
  const TagGuard tag({"communication", nullptr});
  return empty({elements}, dtype, device);
}

// Memory that MPI can read instead of the tensor's, and memory that it can write.
Tensor host_copy(const Tensor& tensor) {
  if (host_reaches(tensor.device())) return tensor;
  const TagGuard tag({"communication", nullptr});
  return to(tensor, Device());
}
Tensor host_room(const Tensor& tensor) {
  return host_reaches(tensor.device()) ? tensor : buffer(tensor.numel(), tensor.dtype());
}
void take_from(const Tensor& room, const Tensor& tensor) {
  if (!room.is_same(tensor)) copy_(tensor, to(room.view(tensor.sizes()), tensor.device()));
}

// Note [Fixed tree]: writes the sum of the rows of [rows, n] to `out`; changes the rows.
void add_rows(const Tensor& rows, const Tensor& out) {
  const std::int64_t count = rows.size(0);
  if (rows.dtype() != out.dtype()) {
    TreeSum sum;
    for (std::int64_t i = 0; i < count; ++i) sum.add(to(rows[i], out.dtype()));
    copy_(out, sum.take());
    return;
  }
  if (count == 1) {
    copy_(out, rows[0]);
    return;
  }
  for (std::int64_t apart = 1; apart < count; apart *= 2)
    for (std::int64_t i = 0; i + apart < count; i += 2 * apart) {
      const bool last = 2 * apart >= count;
      ops::add_out(last ? out : rows[i], rows[i], rows[i + apart]);
    }
}

void finish(std::unique_ptr<Transfer> transfer) {
  if (transfer != nullptr) transfer->wait();
}

}  // namespace

void Work::progress() {
  if (transfer_ != nullptr && transfer_->test()) transfer_.reset();
}

void Work::wait() {
  while (is_pending()) {
    if (transfer_ != nullptr) std::exchange(transfer_, nullptr)->wait();
    if (!finish_) break;
    *this = std::exchange(finish_, nullptr)();
  }
  *this = Work();
}

Work Work::then(std::function<Work()> next) && {
  finish_ = [first = std::move(finish_), next = std::move(next)] {
    Work rest = first ? first() : Work();
    return rest.is_pending() ? std::move(rest).then(next) : next();
  };
  return std::move(*this);
}

void ProcessGroup::check_peer(const char* what, int peer) const {
  if (peer < 0 || peer >= size_)
    throw InvalidArgument(fmt::format("{}: rank {} of a group of {}", what, peer, size_));
}

Work ProcessGroup::start_all_to_all(const Tensor& out, const Tensor& in) {
  check_pieces("all_to_all", out, in, 1);
  if (in.numel() % size_ != 0)
    throw InvalidArgument(fmt::format("all_to_all: {} elements cannot be cut into {} equal pieces",
                                      in.numel(), size_));
  const Tensor from = host_copy(in), room = host_room(out);
  const std::size_t bytes = in.nbytes() / static_cast<std::size_t>(size_);
  bytes_sent_ += others() * bytes;
  return {all_to_all_bytes(from.const_data_ptr(), room.data_ptr(), bytes), {from, room},
          [room, out] {
            take_from(room, out);
            return Work();
          }};
}

Work ProcessGroup::start_reduce_scatter(const Tensor& out, const Tensor& in) {
  check_pieces("reduce_scatter", in, out, size_, true);
  const Tensor from = host_copy(in);
  const Tensor came = buffer(in.numel(), in.dtype());
  const std::size_t bytes = in.nbytes() / static_cast<std::size_t>(size_);
  bytes_sent_ += others() * bytes;
  return {all_to_all_bytes(from.const_data_ptr(), came.data_ptr(), bytes), {from, came},
          [came, out, count = size_] {
            const NoGradGuard no_grad;
            const TagGuard tag({"communication", nullptr});
            const Tensor rows = came.view({count, out.numel()});
            const Tensor flat = out.view({-1});
            if (out.device() == rows.device()) {
              add_rows(rows, flat);
            } else {
              const bool converts = rows.dtype() != out.dtype();
              const Tensor sum = converts ? buffer(out.numel(), out.dtype()) : rows[0];
              add_rows(rows, sum);
              copy_(flat, to(sum, out.device()));
            }
            return Work();
          }};
}

Work ProcessGroup::start_all_gather(const Tensor& out, const Tensor& in) {
  check_pieces("all_gather", out, in, size_);
  const Tensor from = host_copy(in), room = host_room(out);
  bytes_sent_ += others() * in.nbytes();
  return {all_gather_bytes(from.const_data_ptr(), room.data_ptr(), in.nbytes()), {from, room},
          [room, out] {
            take_from(room, out);
            return Work();
          }};
}

Work ProcessGroup::start_all_reduce(const Tensor& tensor) {
  check_contiguous("all_reduce", tensor);
  const std::int64_t piece = (tensor.numel() + size_ - 1) / size_;
  Tensor whole = tensor.detach().view({-1});
  const bool padded = piece * size_ != tensor.numel();
  if (padded) {
    whole = buffer(piece * size_, tensor.dtype(), tensor.device());
    copy_(whole.narrow(0, 0, tensor.numel()), tensor.detach().view({-1}));
    zero_(whole.narrow(0, tensor.numel(), whole.numel() - tensor.numel()));
  }
  const Tensor mine = whole.narrow(0, piece * rank_, piece);
  return start_reduce_scatter(mine, whole)
      .then([this, whole, mine] { return start_all_gather(whole, mine); })
      .then([whole, tensor, padded] {
        if (padded) copy_(tensor.detach().view({-1}), whole.narrow(0, 0, tensor.numel()));
        return Work();
      });
}

Work ProcessGroup::move_one(
    const char* what, const Tensor& tensor, int peer, bool reads, bool writes,
    const std::function<std::unique_ptr<Transfer>(void*, std::size_t)>& start) {
  check_contiguous(what, tensor);
  check_peer(what, peer);
  const Tensor room = reads ? host_copy(tensor) : host_room(tensor);
  return {start(const_cast<void*>(room.const_data_ptr()), room.nbytes()), {room},
          [room, tensor, writes] {
            if (writes) take_from(room, tensor);
            return Work();
          }};
}

Work ProcessGroup::start_broadcast(const Tensor& tensor, int root) {
  Work work =
      move_one("broadcast", tensor, root, rank_ == root, rank_ != root,
               [&](void* data, std::size_t bytes) { return broadcast_bytes(data, bytes, root); });
  if (rank_ == root) bytes_sent_ += others() * tensor.nbytes();
  return work;
}

Work ProcessGroup::start_send(const Tensor& tensor, int to) {
  Work work = move_one("send", tensor, to, true, false,
                  [&](void* data, std::size_t bytes) { return send_bytes(data, bytes, to); });
  bytes_sent_ += tensor.nbytes();
  return work;
}

Work ProcessGroup::start_receive(const Tensor& tensor, int from) {
  return move_one("receive", tensor, from, false, true, [&](void* data, std::size_t bytes) {
    return receive_bytes(data, bytes, from);
  });
}

std::vector<std::string> ProcessGroup::gather_texts(const std::string& text) {
  // First the lengths, then the texts, padded to the longest.
  const auto count = static_cast<std::size_t>(size_);
  const std::uint64_t length = text.size();
  std::vector<std::uint64_t> lengths(count);
  finish(all_gather_bytes(&length, lengths.data(), sizeof(length)));
  const std::uint64_t most = *std::max_element(lengths.begin(), lengths.end());
  std::string mine = text, all(count * most, '\0');
  mine.resize(most);
  if (most > 0) finish(all_gather_bytes(mine.data(), all.data(), most));
  bytes_sent_ += others() * (sizeof(length) + most);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) texts.push_back(all.substr(i * most, lengths[i]));
  return texts;
}

}  // namespace tenon::distributed
