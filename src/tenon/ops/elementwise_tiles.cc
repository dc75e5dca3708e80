#include "tenon/ops/elementwise_tiles.h"

#include <algorithm>

#include "tenon/tensor/strided_rows.h"

namespace tenon::ops {
namespace {

constexpr std::int64_t kTile = 64;
constexpr std::int64_t kSmallest = 32;
constexpr std::int64_t kMaxItem = 8;

struct Walk {
  std::int64_t item = 0;
  bool down = false;  // runs along the columns
};

// How each operand (the output first) walks; false where tiles do not apply.
bool classify(const ElementwisePlan& plan, const StridedLoop& loop, const Tensor& out,
              const Tensor* const* inputs, Walk* walks) {
  if (loop.ndim() != 2 || loop.size_at(0) < kSmallest || loop.size_at(1) < kSmallest) return false;
  bool any_down = false;
  for (std::size_t i = 0; i <= plan.input_count; ++i) {
    const Tensor& t = i == 0 ? out : *inputs[i - 1];
    const DType wanted = i == 0 ? plan.result_dtype : plan.input_dtypes[i - 1];
    walks[i].item = static_cast<std::int64_t>(t.item_size());
    if (t.dtype() != wanted || walks[i].item > kMaxItem) return false;
    if (loop.row_stride(i) == walks[i].item) continue;
    walks[i].down = i > 0 && loop.stride_at(1, i) == walks[i].item && loop.row_stride(i) != 0;
    if (!walks[i].down) return false;
    any_down = true;
  }
  return any_down;
}

}  // namespace

bool run_tiles(const ElementwisePlan& plan, const StridedLoop& loop, const Tensor& out,
               const Tensor* const* inputs) {
  Walk walks[kMaxInputs + 1];
  if (!classify(plan, loop, out, inputs, walks)) return false;
  const std::int64_t columns = loop.size_at(0);
  const std::int64_t rows = loop.size_at(1);
  const auto tile_row = [&](std::int64_t first) {
    alignas(64) char tiles[kMaxInputs][kTile * kTile * kMaxItem];
    const std::int64_t height = std::min(kTile, rows - first);
    for (std::int64_t c = 0; c < columns; c += kTile) {
      const std::int64_t width = std::min(kTile, columns - c);
      for (std::size_t i = 1; i <= plan.input_count; ++i)
        if (walks[i].down)
          tenon::detail::transpose(
              tiles[i - 1], kTile * walks[i].item,
              loop.data(i) + first * loop.stride_at(1, i) + c * loop.row_stride(i),
              loop.row_stride(i), walks[i].item, height, width);
      for (std::int64_t r = 0; r < height; ++r) {
        const void* in[kMaxInputs] = {};
        for (std::size_t i = 1; i <= plan.input_count; ++i)
          in[i - 1] = walks[i].down ? tiles[i - 1] + r * kTile * walks[i].item
                                    : loop.data(i) + (first + r) * loop.stride_at(1, i) +
                                          c * loop.row_stride(i);
        plan.function(loop.data(0) + (first + r) * loop.stride_at(1, 0) + c * loop.row_stride(0),
                      in, width, plan.numbers);
      }
    }
  };
  const std::int64_t grain = std::max<std::int64_t>(1, StridedLoop::kGrain / (columns * kTile));
  parallel_for(0, (rows + kTile - 1) / kTile, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) tile_row(t * kTile);
  });
  return true;
}

}  // namespace tenon::ops
