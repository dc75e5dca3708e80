#include "tenon/ops/fused_attention.h"

#include <algorithm>
#include <numeric>

#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/attention_tiles.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {
namespace {

using cpu::AttentionHead;
using cpu::AttentionRows;

DimVector batch_of(IntList sizes) {
  DimVector batch = sizes.to_vector();
  batch.resize(batch.size() - 2);
  return batch;
}

DimVector with(DimVector batch, std::int64_t rows, std::int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

Tensor with_dense_rows(const Tensor& t) {
  return t.size(-1) == 1 || t.stride(-1) == 1 ? t : contiguous(t);
}

// The heads of an attention, and where the rows of each lie.
class Heads {
 public:
  explicit Heads(const Attention& a)
      : is_causal_(a.is_causal), scale_(a.scale), batch_(batch_of(a.sizes())) {
    query_ = rows(a.query), key_ = rows(a.key), value_ = rows(a.value);
    if (!a.mask.defined()) return;
    const DType dtype = a.mask.dtype() == DType::kBool ? DType::kBool : compute_dtype(a.dtype());
    mask_ = to(a.mask, dtype).expand(with(batch_, query_.size(-2), key_.size(-2)));
  }

  // The tensor with all leading dimensions.
  Tensor rows(const Tensor& t) const {
    return with_dense_rows(t).expand(with(batch_, t.size(-2), t.size(-1)));
  }
  std::int64_t count() const { return numel_of(batch_); }
  std::int64_t blocks() const { return cpu::attention_tiles(query_.size(-2)); }

  AttentionHead head(std::int64_t i) const {
    AttentionHead h;
    h.dtype = compute_dtype(query_.dtype());
    h.queries = query_.size(-2), h.keys = key_.size(-2);
    h.size = query_.size(-1), h.value_size = value_.size(-1);
    h.scale = scale_;
    h.is_causal = is_causal_;
    h.q = part(query_, i), h.k = part(key_, i), h.v = part(value_, i);
    if (!mask_.defined()) return h;
    h.mask = part(mask_, i).data;
    h.is_bool_mask = mask_.dtype() == DType::kBool;
    h.mask_row = mask_.stride(-2), h.mask_column = mask_.stride(-1);
    return h;
  }
  // Rows of head i of a tensor with all leading dimensions.
  AttentionRows part(const Tensor& t, std::int64_t i) const {
    std::int64_t offset = 0;
    for (std::size_t d = batch_.size(); d-- > 0; i /= batch_[d])
      offset += i % batch_[d] * t.strides()[d];
    // The kernels read what is not to be written.
    auto* const data = static_cast<char*>(const_cast<void*>(t.const_data_ptr()));
    return {data + offset * static_cast<std::int64_t>(t.item_size()), t.stride(-2), t.dtype()};
  }
  AttentionRows written(const Tensor& t, std::int64_t i) const {
    return t.defined() ? part(t, i) : AttentionRows();
  }

 private:
  const bool is_causal_;
  const double scale_;
  const DimVector batch_;
  Tensor query_, key_, value_, mask_;
};

// The gradients of a head, block after block.
void one_head(const cpu::AttentionKernels& kernels, const AttentionHead& head, char* room) {
  for (std::int64_t block = 0; block < cpu::attention_tiles(head.queries); ++block) {
    kernels.begin(head, block, room);
    for (std::int64_t tile = 0; tile < cpu::attention_tiles_seen(head, block); ++tile) {
      kernels.finish(head, block, tile, room);
      kernels.add(head, block, tile, room);
    }
    kernels.end(head, block, room);
  }
}

// The same sums, by as many threads as there are `rooms`: each has a block, then each has tiles.
void one_head_on_threads(const cpu::AttentionKernels& kernels, const AttentionHead& head,
                         const std::vector<char*>& rooms) {
  const auto count = static_cast<std::int64_t>(rooms.size());
  const std::int64_t blocks = cpu::attention_tiles(head.queries);
  for (std::int64_t first = 0; first < blocks; first += count) {
    const std::int64_t end = std::min(blocks, first + count);
    const auto room = [&](std::int64_t block) {
      return rooms[static_cast<std::size_t>(block - first)];
    };
    parallel_for(first, end, 1, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t block = from; block < to; ++block) {
        kernels.begin(head, block, room(block));
        for (std::int64_t tile = 0; tile < cpu::attention_tiles_seen(head, block); ++tile)
          kernels.finish(head, block, tile, room(block));
        kernels.end(head, block, room(block));
      }
    });
    parallel_for(0, cpu::attention_tiles_seen(head, end - 1), 1,
                 [&](std::int64_t from, std::int64_t to) {
                   for (std::int64_t tile = from; tile < to; ++tile)
                     for (std::int64_t block = first; block < end; ++block)
                       if (tile < cpu::attention_tiles_seen(head, block))
                         kernels.add(head, block, tile, room(block));
                 });
  }
}

}  // namespace

DimVector Attention::sizes() const {
  constexpr const char* kName = "scaled_dot_product_attention";
  const DimVector both = broadcast_sizes(batch_of(query.sizes()), batch_of(key.sizes()), kName);
  return with(broadcast_sizes(both, batch_of(value.sizes()), kName), query.size(-2),
              value.size(-1));
}

bool has_fused_attention(const Attention& a) {
  constexpr std::int64_t kFewQueries = 8;  // their scores are smaller than the keys
  for (const Tensor* t : {&a.query, &a.key, &a.value}) {
    if (t->device() != Device{} || t->impl()->is_labelled() || t->dtype() != a.dtype() ||
        t->numel() == 0)
      return false;
  }
  if (a.query.size(-2) < kFewQueries || numel_of(a.sizes()) == 0) return false;
  if (!a.mask.defined()) return true;
  const DimVector scores = with(batch_of(a.sizes()), a.query.size(-2), a.key.size(-2));
  return a.mask.device() == Device{} && !a.mask.impl()->is_labelled() &&
         (a.mask.dtype() == DType::kBool || is_floating(a.mask.dtype())) &&
         broadcast_sizes(scores, a.mask.sizes(), "scaled_dot_product_attention") == scores;
}

void fused_attention(const Attention& a, const Tensor& out) {
  const Heads heads(a);
  const cpu::AttentionKernels kernels = cpu::attention_kernels(compute_dtype(a.dtype()));
  const std::int64_t blocks = heads.blocks(), count = heads.count() * blocks;
  cpu::Workspaces rooms(kernels.forward_bytes(heads.head(0)), count);
  parallel_for(0, count, 1, [&](std::int64_t begin, std::int64_t end) {
    char* const room = rooms.take();
    for (std::int64_t i = begin; i < end; ++i) {
      AttentionHead head = heads.head(i / blocks);
      head.out = heads.written(out, i / blocks);
      kernels.forward(head, i % blocks, room);
    }
    rooms.give(room);
  });
}

void fused_attention_gradients(const Attention& a, const Tensor& gradient,
                               const AttentionGradients& to) {
  const Heads heads(a);
  const cpu::AttentionKernels kernels = cpu::attention_kernels(compute_dtype(a.dtype()));
  const Tensor g = heads.rows(gradient);
  for (const Tensor* t : {&to.key, &to.value})
    if (t->defined()) fill_(*t, 0);
  const auto head_of = [&](std::int64_t i) {
    AttentionHead head = heads.head(i);
    head.gradient = heads.part(g, i);
    head.dq = heads.written(to.query, i);
    head.dk = heads.written(to.key, i), head.dv = heads.written(to.value, i);
    return head;
  };
  const bool by_heads = heads.count() >= num_threads();
  cpu::Workspaces rooms(kernels.backward_bytes(heads.head(0)),
                        by_heads ? heads.count() : heads.blocks());
  if (by_heads)
    return parallel_for(0, heads.count(), 1, [&](std::int64_t begin, std::int64_t end) {
      char* const room = rooms.take();
      for (std::int64_t i = begin; i < end; ++i) one_head(kernels, head_of(i), room);
      rooms.give(room);
    });
  std::vector<char*> all;
  for (std::int64_t i = std::min<std::int64_t>(num_threads(), heads.blocks()); i > 0; --i)
    all.push_back(rooms.take());
  for (std::int64_t i = 0; i < heads.count(); ++i) one_head_on_threads(kernels, head_of(i), all);
}

Tensor empty_in_order_of(const Tensor& like, IntList sizes, DType dtype) {
  const auto last = static_cast<std::size_t>(like.dim() - 1);
  DimVector order(last, 0);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return like.stride(a) > like.stride(b);
  });
  DimVector strides(last + 1, 1);
  std::int64_t stride = sizes[last];
  for (std::size_t i = last; i-- > 0;) {
    const auto d = static_cast<std::size_t>(order[i]);
    strides[d] = stride;
    stride *= std::max<std::int64_t>(sizes[d], 1);
  }
  return empty_strided(sizes, strides, dtype);
}

}  // namespace tenon::ops
