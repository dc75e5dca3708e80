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
// The gradient (Dao 2023, FlashAttention-2), with p the shares and o = p v:
//   dv = p^T do,  dp = do v^T,  ds = p (dp - rowsum(do o)) scale,  dq = ds k,  dk = ds^T q.
// The forward pass keeps each query's largest score and the inverse of its sum, so that p of a tile
// is exp(scores - largest) / sum. One number, log(sum) + largest, would lose the sum where a mask
// adds the lowest number to a whole row. A tile of keys meets the queries block by block; rows of
// these tiles are queries. Scores have the bits that the forward pass had: none is above `largest`.
//
// dk and dv of a key are sums over the blocks in their order, and dq of a query one over the tiles
// in theirs, whatever thread adds them. So no result depends on the number of threads.

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
  void* sums = nullptr;  // [2, queries], unless null: largest scores, 1 / sum of exp(score - that)
  // For the gradient: that of `out`, rowsum(do o), and what is computed where it has data: in the
  // dtype of the arithmetic.
  AttentionRows gradient;
  void* dots = nullptr;  // [queries]
  AttentionRows dq, dk, dv;
};

// Queries of a block, and keys of a tile.
constexpr std::int64_t kAttentionTile = 64;
constexpr std::int64_t attention_tiles(std::int64_t rows) {
  return (rows + kAttentionTile - 1) / kAttentionTile;
}

// All on the calling thread. `room` is scratch memory of these bytes, aligned to 64 bytes.
struct AttentionKernels {
  std::size_t (*room_bytes)(const AttentionHead& head);
  void (*forward)(const AttentionHead& head, std::int64_t block, char* room);
};
struct AttentionRange {
  std::int64_t begin, end;
};
struct AttentionGradientKernels {
  std::size_t (*room_bytes)(const AttentionHead& head);
  void (*dots)(const AttentionHead& head, std::int64_t block, char* room);
  // dq of the blocks, from all tiles, or dk and dv of the tiles, from all blocks; with both ranges
  // whole, all three. Requires: dots.
  void (*gradients)(const AttentionHead& head, AttentionRange blocks, AttentionRange tiles,
                    char* room);
};

// For the best instruction set that the machine has.
AttentionKernels attention_kernels(DType compute);
AttentionGradientKernels attention_gradient_kernels(DType compute);

}  // namespace tenon::ops::cpu
