// Attention on the host, a tile of scores at a time.
#pragma once

#include <cstdint>

#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

// Note [Attention in tiles]
//
// Dao et al. 2022 (FlashAttention): no matrix of scores is kept. A block of queries meets the keys
// tile by tile. A tile's rows are keys and its lanes queries, so the largest score, the sum and the
// dot product of each query are vectors of lanes. Each tile is exp(scores - largest so far). Where
// a later tile has a larger score, sums are scaled to it.
//
// The gradient, with p the shares and o = p v:
//   dv = p^T do,  dp = do v^T,  ds = p (dp - rowsum(dp p)) scale,  dq = ds k,  dk = ds^T q.
// A first pass over the tiles of a block finds exp(scores - largest) and dp, which stay in scratch
// memory, and the sums. The second one makes p and ds of them. So nothing of the forward pass is
// needed but q, k and v.
//
// dk and dv of a key are sums over the blocks in their order, whatever thread adds which keys. So
// no result depends on the number of threads.

// A matrix whose rows are dense: f32, f64 or, where the arithmetic is in f32, 16-bit floats.
struct AttentionRows {
  void* data = nullptr;
  std::int64_t stride = 0;
  DType dtype = DType::kF32;
};

// One head: q [queries, size], k [keys, size], v [keys, value_size]; the mask [queries, keys] is
// null, or of bools, or in the dtype of the arithmetic. Requires: no size is 0.
struct AttentionHead {
  DType dtype = DType::kF32;  // of the arithmetic: f32 or f64
  std::int64_t queries = 0, keys = 0, size = 0, value_size = 0;
  double scale = 1;
  bool is_causal = false;
  AttentionRows q, k, v;
  const void* mask = nullptr;
  bool is_bool_mask = false;
  std::int64_t mask_row = 0, mask_column = 0;  // strides
  AttentionRows out;
  // For the gradient: that of `out`, and what is computed where it has data. dk and dv are in the
  // dtype of the arithmetic, and zeros at first.
  AttentionRows gradient;
  AttentionRows dq, dk, dv;
};

// Queries of a block, and keys of a tile.
constexpr std::int64_t kAttentionTile = 64;
constexpr std::int64_t attention_tiles(std::int64_t rows) {
  return (rows + kAttentionTile - 1) / kAttentionTile;
}

// On the calling thread. `room` is scratch memory of a block, aligned to 64 bytes.
struct AttentionKernels {
  std::size_t (*forward_bytes)(const AttentionHead& head);
  std::size_t (*backward_bytes)(const AttentionHead& head);
  void (*forward)(const AttentionHead& head, std::int64_t block, char* room);
  // The gradient of a block: begin; finish for each tile; add for each, once it is finished, from
  // one thread or several; end, which writes rows of dq, once all are finished.
  void (*begin)(const AttentionHead& head, std::int64_t block, char* room);
  void (*finish)(const AttentionHead& head, std::int64_t block, std::int64_t tile, char* room);
  void (*add)(const AttentionHead& head, std::int64_t block, std::int64_t tile, char* room);
  void (*end)(const AttentionHead& head, std::int64_t block, char* room);
};

// The tiles that a block sees.
std::int64_t attention_tiles_seen(const AttentionHead& head, std::int64_t block);

// For the best instruction set that the machine has.
AttentionKernels attention_kernels(DType compute);

}  // namespace tenon::ops::cpu
