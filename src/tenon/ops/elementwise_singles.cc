#include "tenon/ops/elementwise_singles.h"

#include <algorithm>

#include "tenon/tensor/copy.h"

namespace tenon::ops {
namespace {

constexpr std::int64_t kShortestRow = 32;  // in elements
constexpr std::int64_t kRowsAtOnce = 64;   // whose single elements are read together

// Operands of the loop: 0 is the output, 1 and 2 the inputs; 0 where none has one element a row.
std::size_t single_operand(const ElementwisePlan& plan, const StridedLoop& loop, const Tensor& out,
                           const Tensor* const* inputs) {
  const auto item = [](const Tensor& t) { return static_cast<std::int64_t>(t.item_size()); };
  if (plan.input_count != 2 || loop.ndim() < 2 || loop.row_length() < kShortestRow ||
      out.dtype() != plan.result_dtype || loop.row_stride(0) != item(out))
    return 0;
  for (const std::size_t single : {std::size_t{1}, std::size_t{2}}) {
    const Tensor& row = *inputs[2 - single];
    if (loop.row_stride(single) == 0 && plan.single[single - 1] != nullptr &&
        row.dtype() == plan.input_dtypes[2 - single] && loop.row_stride(3 - single) == item(row))
      return single;
  }
  return 0;
}

}  // namespace

bool run_singles(const ElementwisePlan& plan, const StridedLoop& loop, const Tensor& out,
                 const Tensor* const* inputs) {
  const std::size_t single = single_operand(plan, loop, out, inputs);
  if (single == 0) return false;
  const BlockFunction function = plan.single[single - 1];
  const DType compute = compute_dtype(plan.input_dtypes[single - 1]);
  const auto item = static_cast<std::int64_t>(item_size(compute));
  const auto load = tenon::detail::conversion_row(compute, inputs[single - 1]->dtype());
  const std::int64_t length = loop.row_length(), height = loop.size_at(1);
  parallel_for(
      0, loop.numel() / length, std::max<std::int64_t>(1, StridedLoop::kGrain / length),
      [&](std::int64_t begin, std::int64_t end) {
        alignas(64) char elements[kRowsAtOnce * sizeof(double)];  // no form is of larger ones
        while (begin < end) {
          const std::int64_t rows = std::min({kRowsAtOnce, end - begin, height - begin % height});
          const auto start = [&](std::size_t i) {
            char* at = loop.data(i) + begin % height * loop.stride_at(1, i);
            std::int64_t rest = begin / height;
            for (std::size_t d = 2; d < loop.ndim(); rest /= loop.size_at(d++))
              at += rest % loop.size_at(d) * loop.stride_at(d, i);
            return at;
          };
          char* pair[2] = {elements, start(single)};
          const std::int64_t steps[2] = {item, loop.stride_at(1, single)};
          load(pair, steps, rows);
          char* to = start(0);
          const char* from = start(3 - single);
          for (std::int64_t r = 0; r < rows; ++r) {
            const void* const in[2] = {elements + r * item, from};
            function(to, in, length, plan.numbers);
            to += loop.stride_at(1, 0);
            from += loop.stride_at(1, 3 - single);
          }
          begin += rows;
        }
      });
  return true;
}

}  // namespace tenon::ops
