#include "tenon/ops/elementwise_tiles.h"

#include <algorithm>

#include "tenon/tensor/copy.h"
#include "tenon/tensor/strided_rows.h"

namespace tenon::ops {
namespace {

constexpr std::int64_t kSmallest = 32;
constexpr std::int64_t kMaxItem = 8;
constexpr std::int64_t kTileBytes = 64 * 64 * 4;
constexpr std::int64_t kShortBytes = 128;  // of rows that are not worth a call

// How an operand (the output first) walks.
struct Walk {
  tenon::detail::RowFunction convert = nullptr;  // null where the dtype is the function's
  std::int64_t item = 0, block_item = 0;         // bytes of its own elements and of the function's
  bool is_down = false;                          // along the columns
  bool is_row = false;                           // along the rows, densely
};

struct TileBuffers {
  alignas(64) char own[kTileBytes];  // a tile in the operand's dtype
  alignas(64) char blocks[kMaxInputs + 1][kTileBytes];
};

struct Tile {
  std::int64_t row, column, height, width;
};

class TileRunner {
 public:
  TileRunner(const ElementwisePlan& plan, const StridedLoop& loop, const Tensor& out,
             const Tensor* const* inputs)
      : plan_(plan), loop_(loop) {
    if (loop.ndim() != 2 || loop.size_at(0) < kSmallest || loop.size_at(1) < kSmallest ||
        out.dtype() != plan.result_dtype)
      return;
    std::int64_t widest = 0;
    bool any_down = false, any_converted = false;
    for (std::size_t i = 0; i <= plan.input_count; ++i) {
      const DType own = (i == 0 ? out : *inputs[i - 1]).dtype();
      const DType wanted = i == 0 ? plan.result_dtype : plan.input_dtypes[i - 1];
      Walk& w = walks_[i];
      w.item = static_cast<std::int64_t>(item_size(own));
      w.block_item = static_cast<std::int64_t>(item_size(wanted));
      if (own != wanted) w.convert = tenon::detail::conversion_row(wanted, own);
      any_converted = any_converted || own != wanted;
      widest = std::max({widest, w.item, w.block_item});
      w.is_row = loop.row_stride(i) == w.item;
      const bool is_column = i > 0 && loop.row_stride(i) == 0 && loop.stride_at(1, i) != 0;
      if (w.is_row || is_column) continue;
      w.is_down = i > 0 && loop.stride_at(1, i) == w.item && loop.row_stride(i) != 0;
      if (!w.is_down) return;
      any_down = true;
    }
    applies_ = any_down && widest <= kMaxItem;
    side_ = widest > 4 ? 32 : 64;
    is_whole_ = any_converted || side_ * walks_[0].item <= kShortBytes;
  }

  bool applies() const { return applies_; }
  std::int64_t side() const { return side_; }

  // Row by row, or the tile as one block where rows are short or there is something to convert.
  void operator()(const Tile& t, TileBuffers& buffers) const {
    const void* in[kMaxInputs] = {};
    std::int64_t steps[kMaxInputs] = {};
    for (std::size_t i = 1; i <= plan_.input_count; ++i) {
      const bool is_direct = walks_[i].is_row && !is_whole_;
      in[i - 1] = is_direct ? data(i, t) : block(i, t, buffers);
      steps[i - 1] = is_direct ? loop_.stride_at(1, i) : t.width * walks_[i].block_item;
    }
    char* const out = data(0, t);
    if (is_whole_) {
      plan_.function(buffers.blocks[0], in, t.height * t.width, plan_.numbers);
      const std::int64_t bytes = t.width * walks_[0].item;
      return tenon::detail::copy_rows(out, loop_.stride_at(1, 0), buffers.blocks[0], bytes,
                                      walks_[0].item, walks_[0].item, t.width, t.height);
    }
    for (std::int64_t r = 0; r < t.height; ++r) {
      plan_.function(out + r * loop_.stride_at(1, 0), in, t.width, plan_.numbers);
      for (std::size_t i = 0; i < plan_.input_count; ++i)
        in[i] = static_cast<const char*>(in[i]) + steps[i];
    }
  }

 private:
  char* data(std::size_t i, const Tile& t) const {
    return loop_.data(i) + t.row * loop_.stride_at(1, i) + t.column * loop_.row_stride(i);
  }

  // The tile of an input as a dense block of the function's dtype.
  const char* block(std::size_t i, const Tile& t, TileBuffers& buffers) const {
    const Walk& w = walks_[i];
    char* const made = buffers.blocks[i];
    char* const own = w.convert == nullptr ? made : buffers.own;
    const std::int64_t bytes = t.width * w.item;
    if (w.is_down)
      tenon::detail::transpose(own, bytes, data(i, t), loop_.row_stride(i), w.item, t.height,
                               t.width);
    else
      tenon::detail::copy_rows(own, bytes, data(i, t), loop_.stride_at(1, i), w.item,
                               loop_.row_stride(i), t.width, t.height);
    if (w.convert != nullptr) {
      char* pair[2] = {made, own};
      const std::int64_t items[2] = {w.block_item, w.item};
      w.convert(pair, items, t.height * t.width);
    }
    return made;
  }

  const ElementwisePlan& plan_;
  const StridedLoop& loop_;
  std::array<Walk, kMaxInputs + 1> walks_;
  std::int64_t side_ = 0;
  bool applies_ = false, is_whole_ = false;
};

}  // namespace

bool run_tiles(const ElementwisePlan& plan, const StridedLoop& loop, const Tensor& out,
               const Tensor* const* inputs) {
  const TileRunner run(plan, loop, out, inputs);
  if (!run.applies()) return false;
  const std::int64_t columns = loop.size_at(0), rows = loop.size_at(1), side = run.side();
  const std::int64_t grain = std::max<std::int64_t>(1, StridedLoop::kGrain / (columns * side));
  parallel_for(0, (rows + side - 1) / side, grain, [&](std::int64_t begin, std::int64_t end) {
    TileBuffers buffers;
    for (std::int64_t row = begin * side; row < std::min(end * side, rows); row += side)
      for (std::int64_t column = 0; column < columns; column += side)
        run({row, column, std::min(side, rows - row), std::min(side, columns - column)}, buffers);
  });
  return true;
}

}  // namespace tenon::ops
