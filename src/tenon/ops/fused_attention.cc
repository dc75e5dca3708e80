#include "tenon/ops/fused_attention.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/attention_tiles.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/dim_labels.h"
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

bool is_named(const Tensor& t) {
  const ExtraMeta* const extra = t.impl()->extra_meta();
  return extra != nullptr && !extra->names.empty();
}

// Names are not followed; symbols, which only meta has, are.
bool is_place_of_fused(const Tensor& t, Device device) {
  return t.device() == device && (device == Device{} || t.is_meta()) && !is_named(t);
}

SymInt rows_of(const Tensor& t) { return t.sym_sizes()[static_cast<std::size_t>(t.dim() - 2)]; }

bool has_fewer_rows(const Tensor& t, std::int64_t count) {
  return t.impl()->is_labelled() ? rows_of(t) < SymInt(count) : t.size(-2) < count;
}

// The copies of operands that Heads makes, on meta.
std::array<Tensor, 4> copies_on_meta(const Attention& a) {
  const bool is_bool = a.mask.defined() && a.mask.dtype() == DType::kBool;
  return {with_dense_rows(a.query), with_dense_rows(a.key), with_dense_rows(a.value),
          a.mask.defined() && !is_bool ? to(a.mask, compute_dtype(a.dtype())) : a.mask};
}

// The result's leading sizes, as expressions.
SymSizes sym_batch_of(const Attention& a) {
  SymSizes batch;
  for (const std::int64_t size : batch_of(a.sizes())) batch.emplace_back(size);
  for (const Tensor* t : {&a.query, &a.key, &a.value}) {
    const SymSizes sizes = t->sym_sizes();
    for (std::size_t i = 2; i < sizes.size(); ++i) {
      SymInt& size = batch[batch.size() + 1 - i];
      const SymInt& own = sizes[sizes.size() - 1 - i];
      if (own.is_symbolic() && own.hint() == size.hint()) size = own;
    }
  }
  return batch;
}

Tensor empty_on_meta(IntList sizes, DType dtype, const SymSizes& symbols) {
  const KnownShapes known({&symbols, 1});
  return empty(sizes, dtype, Device{DeviceType::kMeta});
}

// What the gradients take besides their results, on meta.
void gradients_on_meta(const Attention& a, const AttentionResult& result, const Tensor& gradient) {
  const std::array<Tensor, 4> copies = copies_on_meta(a);
  const Tensor g = with_dense_rows(gradient);
  SymSizes symbols = {SymInt(1), rows_of(a.query)};
  for (const SymInt& size : sym_batch_of(a)) symbols[0] = symbols[0] * size;
  static_cast<void>(empty_on_meta({numel_of(batch_of(a.sizes())), a.query.size(-2)},
                                  result.sums.dtype(), symbols));
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
  std::int64_t tiles() const { return cpu::attention_tiles(key_.size(-2)); }

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
  // The numbers of head i in a contiguous tensor; null where it is undefined.
  void* numbers(const Tensor& t, std::int64_t i) const {
    if (!t.defined()) return nullptr;
    auto* const data = static_cast<char*>(const_cast<void*>(t.const_data_ptr()));
    return data + i * (t.numel() / count()) * static_cast<std::int64_t>(t.item_size());
  }

 private:
  const bool is_causal_;
  const double scale_;
  const DimVector batch_;
  Tensor query_, key_, value_, mask_;
};

// f(head, begin, end) for parts of [0, count) of each of the heads, on several threads.
template <typename F>
void for_parts(std::int64_t heads, std::int64_t count, const F& f) {
  parallel_for(0, heads * count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin, next = 0; i < end; i = next) {
      next = std::min(end, (i / count + 1) * count);
      f(i / count, i % count, next - i / count * count);
    }
  });
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
    if (!is_place_of_fused(*t, a.query.device()) || t->dtype() != a.dtype() ||
        tenon::detail::has_fewer_elements(*t, 1))
      return false;
  }
  if (has_fewer_rows(a.query, kFewQueries) || numel_of(a.sizes()) == 0) return false;
  if (!a.mask.defined()) return true;
  const DimVector scores = with(batch_of(a.sizes()), a.query.size(-2), a.key.size(-2));
  return is_place_of_fused(a.mask, a.query.device()) &&
         (a.mask.dtype() == DType::kBool || is_floating(a.mask.dtype())) &&
         broadcast_sizes(scores, a.mask.sizes(), "scaled_dot_product_attention") == scores;
}

Tensor empty_sums(const Attention& a) {
  const DimVector sizes = with(batch_of(a.sizes()), 2, a.query.size(-2));
  const DType dtype = compute_dtype(a.dtype());
  if (!a.query.is_meta()) return empty(sizes, dtype);
  SymSizes symbols = sym_batch_of(a);
  symbols.emplace_back(2);
  symbols.push_back(rows_of(a.query));
  return empty_on_meta(sizes, dtype, symbols);
}

void fused_attention(const Attention& a, const AttentionResult& to) {
  if (a.query.is_meta()) {
    static_cast<void>(copies_on_meta(a));
    return;
  }
  const Heads heads(a);
  const cpu::AttentionKernels kernels = cpu::attention_kernels(compute_dtype(a.dtype()));
  const std::int64_t blocks = heads.blocks(), count = heads.count() * blocks;
  cpu::Workspaces rooms(kernels.room_bytes(heads.head(0)), count);
  for_parts(heads.count(), blocks, [&](std::int64_t i, std::int64_t begin, std::int64_t end) {
    char* const room = rooms.take();
    AttentionHead head = heads.head(i);
    head.out = heads.written(to.out, i);
    head.sums = heads.numbers(to.sums, i);
    for (std::int64_t block = begin; block < end; ++block) kernels.forward(head, block, room);
    rooms.give(room);
  });
}

void fused_attention_gradients(const Attention& a, const AttentionResult& result,
                               const Tensor& gradient, const AttentionGradients& to) {
  if (a.query.is_meta()) return gradients_on_meta(a, result, gradient);
  const Heads heads(a);
  const cpu::AttentionGradientKernels kernels =
      cpu::attention_gradient_kernels(compute_dtype(a.dtype()));
  const std::int64_t count = heads.count(), blocks = heads.blocks(), tiles = heads.tiles();
  const Tensor g = heads.rows(gradient), out = heads.rows(result.out);
  const Tensor dots = empty({count, a.query.size(-2)}, result.sums.dtype());
  cpu::Workspaces rooms(kernels.room_bytes(heads.head(0)), count * std::max(blocks, tiles));
  const auto in_room = [&](std::int64_t i, auto&& f) {
    AttentionHead head = heads.head(i);
    head.gradient = heads.part(g, i), head.out = heads.part(out, i);
    head.sums = heads.numbers(result.sums, i), head.dots = heads.numbers(dots, i);
    head.dq = heads.written(to.query, i);
    head.dk = heads.written(to.key, i), head.dv = heads.written(to.value, i);
    char* const room = rooms.take();
    f(head, room);
    rooms.give(room);
  };
  for_parts(count, blocks, [&](std::int64_t i, std::int64_t begin, std::int64_t end) {
    in_room(i, [&](const AttentionHead& head, char* room) {
      for (std::int64_t block = begin; block < end; ++block) kernels.dots(head, block, room);
    });
  });
  // All three at once are five products of tiles; dq, then dk and dv, are three and four.
  const std::int64_t threads = num_threads();
  if (5 * threads * ((count + threads - 1) / threads) <= 7 * count)
    return for_parts(count, 1, [&](std::int64_t i, std::int64_t, std::int64_t) {
      in_room(i, [&](const AttentionHead& head, char* room) {
        kernels.gradients(head, {0, blocks}, {0, tiles}, room);
      });
    });
  if (to.query.defined())
    for_parts(count, blocks, [&](std::int64_t i, std::int64_t begin, std::int64_t end) {
      in_room(i, [&](AttentionHead& head, char* room) {
        head.dk = {}, head.dv = {};
        kernels.gradients(head, {begin, end}, {0, tiles}, room);
      });
    });
  if (to.key.defined() || to.value.defined())
    for_parts(count, tiles, [&](std::int64_t i, std::int64_t begin, std::int64_t end) {
      in_room(i, [&](AttentionHead& head, char* room) {
        head.dq = {};
        kernels.gradients(head, {0, blocks}, {begin, end}, room);
      });
    });
}

Tensor empty_attention(const Attention& a) {
  const DimVector sizes = a.sizes();
  DimVector of_query = sizes;
  of_query.back() = a.query.size(-1);
  return empty_in_order_of(a.query.expand(of_query), sizes, a.dtype());
}

Tensor empty_gradient(const Attention& a, const Tensor& operand) {
  const DimVector sizes = with(batch_of(a.sizes()), operand.size(-2), operand.size(-1));
  const DType dtype = compute_dtype(a.dtype());
  if (!operand.is_meta()) return empty_in_order_of(operand.expand(sizes), sizes, dtype);
  SymSizes symbols = sym_batch_of(a);
  symbols.push_back(rows_of(operand));
  symbols.push_back(operand.sym_sizes().back());
  const KnownShapes known({&symbols, 1});
  return empty_in_order_of(operand.expand(sizes), sizes, dtype);
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
  return empty_strided(sizes, strides, dtype, like.device());
}

}  // namespace tenon::ops
