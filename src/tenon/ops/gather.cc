// The loops under all reductions.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/reduce_blocks.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/ops/reduce.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"
#include "tenon/tensor/strided_loop.h"
#include "tenon/tensor/strided_rows.h"

namespace tenon::ops {
namespace {

using tenon::detail::RowFunction;

constexpr std::int64_t kLineBlock = 512;      // elements that are converted at a time, at least
constexpr std::int64_t kLineBlockBytes = kLineBlock * 16;
constexpr std::int64_t kColumnsBytes = 4 * kLineBlockBytes;
constexpr std::int64_t kPiece = 1 << 16;  // of a long reduction, for one task

struct Dim {
  std::int64_t size;
  std::int64_t stride;  // in bytes
};

// A reduction laid out as loops: over kept dimensions (in the order of the result) and over reduced
// ones (in any order).
class GatherLoop {
 public:
  GatherLoop(const cpu::ReduceBlocks& blocks, DType input, const Tensor& a, std::uint64_t reduced,
             const Tensor& result, const Tensor& shifts)
      : blocks_(blocks),
        data_(static_cast<const char*>(a.const_data_ptr())),
        item_(static_cast<std::int64_t>(a.item_size())),
        input_(input),
        load_(tenon::detail::conversion_row(input_, a.dtype())),
        direct_(a.dtype() == input_),
        accumulator_dtype_(cpu::reduce_accumulator(a.dtype())),
        accumulator_(static_cast<std::int64_t>(item_size(accumulator_dtype_))),
        result_(static_cast<char*>(result.data_ptr())),
        result_item_(static_cast<std::int64_t>(result.item_size())),
        store_(tenon::detail::conversion_row(result.dtype(), accumulator_dtype_)),
        shifts_(shifts.defined() ? shifts.const_data_ptr<double>() : nullptr) {
    for (std::size_t d = 0; d < static_cast<std::size_t>(a.dim()); ++d) {
      if (a.sizes()[d] == 1) continue;
      const Dim dim{a.sizes()[d], a.strides()[d] * item_};
      add(((reduced >> d) & 1) != 0 ? reduced_ : kept_, dim);
    }
    if (reduced_.empty()) reduced_.push_back({1, item_});  // rows of one element
    for (const Dim& dim : kept_) kept_count_ *= dim.size;
    for (const Dim& dim : reduced_) reduced_count_ *= dim.size;
  }

  void run() {
    if (kept_count_ == 0) return;
    if (reduced_count_ == 0) return run_nothing();
    std::int64_t smallest = INT64_MAX;
    for (const Dim& dim : reduced_) smallest = std::min(smallest, dim.stride);
    // Rows of few elements go together where they are one stretch.
    const bool vertical =
        !kept_.empty() && kept_.back().stride < smallest &&
        (kept_.back().size >= 8 || (kept_.back().stride == item_ && reduced_.size() == 1 &&
                                    smallest == kept_.back().size * item_));
    if (vertical) return run_columns();
    if (are_short()) return run_short_rows();
    const bool equal = reduced_.size() == 1 && !kept_.empty() && kept_.back().size >= 4 &&
                       reduced_count_ <= (in_place(reduced_.back().stride) ? kPiece : kLongest);
    equal ? run_equal_rows() : run_rows();
  }

 private:
  void start(char* accumulators, std::int64_t count) const {
    if (count == 0) return;
    blocks_.start(accumulators);
    tenon::detail::copy_steps(accumulators, accumulators, accumulator_, 0, count);
  }

  // Writes the results of `count` kept elements from `kept` on.
  void store(const char* accumulators, std::int64_t kept, std::int64_t count) const {
    char* pair[2] = {result_ + kept * result_item_, const_cast<char*>(accumulators)};
    const std::int64_t steps[2] = {result_item_, accumulator_};
    store_(pair, steps, count);
  }

  // Neighbouring dimensions that are one in memory become one.
  static void add(InlineVector<Dim, 8>& dims, Dim dim) {
    if (!dims.empty() && dims.back().stride == dim.size * dim.stride) {
      dims.back() = {dims.back().size * dim.size, dim.stride};
      return;
    }
    dims.push_back(dim);
  }

  static std::int64_t offset_of(const InlineVector<Dim, 8>& dims, std::size_t count,
                                std::int64_t index) {
    if (count == 1) return index * dims[0].stride;
    std::int64_t offset = 0;
    for (std::size_t d = count; d-- > 0; index /= dims[d].size)
      offset += index % dims[d].size * dims[d].stride;
    return offset;
  }

  bool in_place(std::int64_t stride) const { return direct_ && stride == item_; }

  // Dense elements of the right dtype: where they are, or converted into the buffer.
  const void* loaded(const char* from, std::int64_t stride, std::int64_t count,
                     char* buffer) const {
    if (in_place(stride)) return from;
    load(buffer, from, stride, count);
    return buffer;
  }
  void load(char* buffer, const char* from, std::int64_t stride, std::int64_t count) const {
    char* pair[2] = {buffer, const_cast<char*>(from)};
    const std::int64_t steps[2] = {static_cast<std::int64_t>(item_size(input_)), stride};
    load_(pair, steps, count);
  }

  double shift(std::int64_t kept) const { return shifts_ == nullptr ? 0 : shifts_[kept]; }

  void run_nothing() const {
    alignas(16) char total[16];
    start(total, 1);
    for (std::int64_t kept = 0; kept < kept_count_; ++kept) store(total, kept, 1);
  }

  // Kept elements lie side by side: each strip of them is gathered row by row.
  void run_columns() {
    const Dim across = kept_.back();
    const std::int64_t outer = kept_count_ / across.size;
    strip_ = in_place(across.stride) ? 2 * kLineBlock : kLineBlock;
    // Narrower ones, two for each thread, where they go in as they are. No result depends on it:
    // few dense columns, which would be gathered in another order, stay together.
    constexpr std::int64_t kNarrowest = 64, kFew = 256;
    const std::int64_t wanted = num_threads() == 1 ? 1 : 2 * num_threads() / outer;
    if (wanted > 1 && across.size > kFew && in_place(across.stride) &&
        reduced_.back().stride % item_ == 0)
      strip_ = std::clamp((across.size / wanted + kNarrowest - 1) / kNarrowest * kNarrowest,
                          kNarrowest, strip_);
    const std::int64_t strips = (across.size + strip_ - 1) / strip_;
    const std::int64_t work =
        std::max<std::int64_t>(1, reduced_count_ * std::min(strip_, across.size));
    parallel_for(0, outer * strips, std::max<std::int64_t>(1, kPiece / work),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t task = begin; task < end; ++task)
                     gather_strip(task / strips, task % strips * strip_, across);
                 });
  }

  void gather_strip(std::int64_t outer, std::int64_t first, const Dim& across) const {
    alignas(64) char buffer[kColumnsBytes];
    alignas(64) char totals[2 * kLineBlock * 16];
    const std::int64_t count = std::min(strip_, across.size - first);
    const std::int64_t kept = outer * across.size + first;
    start(totals, count);
    const char* base = data_ + offset_of(kept_, kept_.size() - 1, outer) + first * across.stride;
    const double* shifts = shifts_ == nullptr ? nullptr : shifts_ + kept;
    // Rows that need no conversion go in together, as far as the innermost dimension reaches;
    // others as far as the buffer does.
    const Dim& down = reduced_.back();
    const bool together = in_place(across.stride) && down.stride % item_ == 0;
    const auto input_item = static_cast<std::int64_t>(item_size(input_));
    const std::int64_t room = together ? 0 : kColumnsBytes / (count * input_item);
    const bool in_line = across.stride == item_ && down.stride == count * item_;
    std::int64_t held = 0;
    InlineVector<std::int64_t, 8> index(reduced_.size(), 0);
    for (std::int64_t n = 0, rows = 0; n < reduced_count_; n += rows) {
      rows = together ? down.size : in_line ? std::min(room - held, down.size - index.back()) : 1;
      if (together) {
        blocks_.columns(totals, base, count, shifts, rows, down.stride / item_);
      } else {
        load(buffer + held * count * input_item, base, across.stride, rows * count);
        base += (rows - 1) * down.stride, index.back() += rows - 1;
        if ((held += rows) == room || n + rows == reduced_count_) {
          blocks_.columns(totals, buffer, count, shifts, held, count);
          held = 0;
        }
      }
      for (std::size_t d = reduced_.size() - (together ? 1 : 0); d-- > 0;) {
        base += reduced_[d].stride;
        if (++index[d] < reduced_[d].size) break;
        base -= reduced_[d].size * reduced_[d].stride;
        index[d] = 0;
      }
    }
    store(totals, kept, count);
  }

  static constexpr std::int64_t kLongest = 2048;  // of rows that pass through a buffer together
  // Rows that a row's own vectors would hardly fill.
  static constexpr std::int64_t kShort = 32, kTogether = 64;
  bool are_short() const {
    return reduced_.size() == 1 && reduced_count_ < kShort && kept_count_ >= kTogether;
  }
  void run_short_rows() {
    const std::int64_t length = reduced_count_;
    const bool in_line = kept_.size() == 1 && reduced_.back().stride == item_ &&
                         kept_.back().stride == length * item_;  // one row after the other
    const std::int64_t tiles = (kept_count_ + kTogether - 1) / kTogether;
    const std::int64_t work = kTogether * length;
    parallel_for(0, tiles, std::max<std::int64_t>(1, kPiece / work / 2),
                 [&](std::int64_t begin, std::int64_t end) {
                   alignas(64) char tile[kShort * kTogether * 16];
                   alignas(64) char totals[kTogether * 16];
                   for (std::int64_t i = begin; i < end; ++i) {
                     const std::int64_t first = i * kTogether;
                     const std::int64_t count = std::min(kTogether, kept_count_ - first);
                     const void* rows = tile;
                     if (in_line)
                       rows = loaded(data_ + first * length * item_, item_, count * length, tile);
                     else
                       load_rows(tile, first, count);
                     start(totals, count);
                     blocks_.short_rows(totals, rows, length,
                                        shifts_ == nullptr ? nullptr : shifts_ + first, count);
                     store(totals, first, count);
                   }
                 });
  }
  // The rows [first, first + count), one after the other.
  void load_rows(char* tile, std::int64_t first, std::int64_t count) const {
    const Dim across = kept_.empty() ? Dim{1, 0} : kept_.back();
    const Dim down = reduced_.back();
    const auto input_item = static_cast<std::int64_t>(item_size(input_));
    for (std::int64_t c = 0; c < count;) {
      const char* from = data_ + offset_of(kept_, kept_.size(), first + c);
      const std::int64_t stretch = std::min(count - c, across.size - (first + c) % across.size);
      for (std::int64_t r = 0; r < down.size; ++r) {
        char* pair[2] = {tile + (c * down.size + r) * input_item,
                         const_cast<char*>(from) + r * down.stride};
        const std::int64_t steps[2] = {down.size * input_item, across.stride};
        load_(pair, steps, stretch);
      }
      c += stretch;
    }
  }

  // Rows at equal distances, each of one stretch: many in one call.
  void run_equal_rows() {
    // Read again from the first-level cache, which holds what it was converted from, too.
    constexpr std::int64_t kLoadedBytes = kLongest * sizeof(float);
    const Dim across = kept_.back(), along = reduced_.back();
    const std::int64_t length = along.size, outer = kept_count_ / across.size;
    const bool direct = in_place(along.stride) && across.stride % item_ == 0;
    const auto input_item = static_cast<std::int64_t>(item_size(input_));
    constexpr std::int64_t kMostRows = 1024;
    const std::int64_t together =
        direct ? std::clamp<std::int64_t>(kPiece / length / 2, 1, kMostRows)
               : std::clamp<std::int64_t>(kLoadedBytes / (length * input_item), 1, kMostRows);
    const std::int64_t tasks = (across.size + together - 1) / together;
    parallel_for(
        0, outer * tasks,
        std::max<std::int64_t>(1, kPiece / (std::min(together, across.size) * length) / 2),
        [&](std::int64_t begin, std::int64_t end) {
          alignas(64) char buffer[kColumnsBytes], totals[kMostRows * 16];
          for (std::int64_t task = begin; task < end; ++task) {
            const std::int64_t first = task % tasks * together;
            const std::int64_t rows = std::min(together, across.size - first);
            const std::int64_t kept = task / tasks * across.size + first;
            const char* from = data_ + offset_of(kept_, kept_.size(), kept);
            if (!direct) load_equal_rows(buffer, from, rows);
            start(totals, rows);
            blocks_.each_row(totals, direct ? from : buffer, length,
                             shifts_ == nullptr ? nullptr : shifts_ + kept, rows,
                             direct ? across.stride / item_ : length);
            store(totals, kept, rows);
          }
        });
  }
  void load_equal_rows(char* buffer, const char* from, std::int64_t rows) const {
    const Dim across = kept_.back(), along = reduced_.back();
    if (across.stride == along.size * along.stride)
      return load(buffer, from, along.stride, rows * along.size);
    const auto bytes = along.size * static_cast<std::int64_t>(item_size(input_));
    for (std::int64_t r = 0; r < rows; ++r)
      load(buffer + r * bytes, from + r * across.stride, along.stride, along.size);
  }

  // Each kept element gathers rows; long ones in pieces of fixed length, whose results are combined
  // in order, so that threads change nothing.
  void run_rows() {
    const std::int64_t pieces = (reduced_count_ + kPiece - 1) / kPiece;
    DimVector sizes, strides;
    for (const Dim& dim : reduced_) {
      sizes.push_back(dim.size);
      strides.push_back(dim.stride);
    }
    const StridedLoop::Operand operand{const_cast<char*>(data_), sizes, strides, 1};
    const StridedLoop loop(sizes, &operand, 1);
    Tensor partial;
    char* parts = nullptr;
    if (pieces > 1) {
      partial = empty({kept_count_ * pieces, accumulator_}, DType::kU8);
      parts = static_cast<char*>(partial.data_ptr());
      start(parts, kept_count_ * pieces);
    }
    const std::int64_t grain =
        std::max<std::int64_t>(1, kPiece / std::min(kPiece, reduced_count_) / 2);
    parallel_for(0, kept_count_ * pieces, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        alignas(16) char total[16];
        if (pieces == 1) start(total, 1);
        gather_piece(loop, task / pieces, task % pieces * kPiece,
                     pieces == 1 ? total : parts + task * accumulator_);
        if (pieces == 1) store(total, task, 1);
      }
    });
    for (std::int64_t kept = 0; pieces > 1 && kept < kept_count_; ++kept) {
      alignas(16) char total[16];
      start(total, 1);
      for (std::int64_t piece = 0; piece < pieces; ++piece)
        blocks_.combine(total, parts + (kept * pieces + piece) * accumulator_);
      store(total, kept, 1);
    }
  }

  void gather_piece(const StridedLoop& loop, std::int64_t kept, std::int64_t begin,
                    char* accumulator) const {
    const std::int64_t offset = offset_of(kept_, kept_.size(), kept);
    const double subtracted = shift(kept);
    const std::int64_t end = std::min(begin + kPiece, reduced_count_);
    if (reduced_.size() == 1 && in_place(reduced_.back().stride))  // the usual case
      return blocks_.row(accumulator, data_ + offset + begin * item_, end - begin, subtracted, 1,
                         0);
    if (in_place(loop.row_stride(0)))
      gather_in_place(loop, offset, begin, end, subtracted, accumulator);
    else
      gather_loaded(loop, offset, begin, end, subtracted, accumulator);
  }

  // Rows of one length at equal distances go in together.
  void gather_in_place(const StridedLoop& loop, std::int64_t offset, std::int64_t begin,
                       std::int64_t end, double subtracted, char* accumulator) const {
    const char* first = nullptr;
    std::int64_t count = 0, rows = 0, apart = 0;
    const auto gather = [&] {
      if (rows > 0) blocks_.row(accumulator, first, count, subtracted, rows, apart / item_);
    };
    loop.run(begin, end, [&](char** data, const std::int64_t*, std::int64_t length) {
      const char* const from = data[0] + offset;
      if (rows == 1) apart = from - first;
      if (rows > 0 && length == count && from == first + rows * apart) {
        ++rows;
        return;
      }
      gather();
      first = from, count = length, rows = 1, apart = 0;
    });
    gather();
  }

  // Rows go in by blocks of the right dtype, which may hold several.
  void gather_loaded(const StridedLoop& loop, std::int64_t offset, std::int64_t begin,
                     std::int64_t end, double subtracted, char* accumulator) const {
    alignas(64) char buffer[kLineBlockBytes];
    const auto input_item = static_cast<std::int64_t>(item_size(input_));
    const std::int64_t room = kLineBlockBytes / input_item;
    std::int64_t filled = 0;
    const auto gather = [&] {
      if (filled > 0) blocks_.row(accumulator, buffer, filled, subtracted, 1, 0);
      filled = 0;
    };
    loop.run(begin, end, [&](char** data, const std::int64_t* strides, std::int64_t length) {
      for (std::int64_t at = 0; at < length;) {
        const std::int64_t count = std::min(room - filled, length - at);
        char* pair[2] = {buffer + filled * input_item, data[0] + offset + at * strides[0]};
        const std::int64_t steps[2] = {input_item, strides[0]};
        load_(pair, steps, count);
        at += count;
        if ((filled += count) == room) gather();
      }
    });
    gather();
  }

  const cpu::ReduceBlocks blocks_;
  const char* const data_;
  const std::int64_t item_;
  const DType input_;
  const RowFunction load_;
  const bool direct_;
  const DType accumulator_dtype_;
  const std::int64_t accumulator_;  // bytes
  char* const result_;
  const std::int64_t result_item_;  // bytes
  const RowFunction store_;
  const double* const shifts_;
  InlineVector<Dim, 8> kept_, reduced_;
  std::int64_t strip_ = kLineBlock;  // columns that one task gathers
  std::int64_t kept_count_ = 1;
  std::int64_t reduced_count_ = 1;
};

// The order of dimensions in which the kept ones go down in stride, so that loops over them run
// along memory; empty where they do already.
DimVector kept_by_stride(const Tensor& a, std::uint64_t reduced) {
  DimVector order;
  std::vector<std::int64_t> kept;
  for (std::int64_t d = 0; d < a.dim(); ++d)
    if (((reduced >> d) & 1) == 0) kept.push_back(d);
  const auto before = [&](std::int64_t x, std::int64_t y) { return a.stride(x) > a.stride(y); };
  if (std::is_sorted(kept.begin(), kept.end(), before)) return order;
  std::stable_sort(kept.begin(), kept.end(), before);
  for (const std::int64_t d : kept) order.push_back(d);
  return order;
}

// As gather, in that order.
Tensor gather_by_stride(const Gather kind, const Tensor& a, std::uint64_t reduced,
                        const Tensor& shifts, const DimVector& order, DType dtype) {
  DimVector all = order, sizes, kept_sizes, back(order.size(), 0);
  for (const std::int64_t d : order) sizes.push_back(a.size(d));
  std::int64_t rank = 0;
  for (std::int64_t d = 0; d < a.dim(); ++d) {
    if (((reduced >> d) & 1) != 0) {
      all.push_back(d);
      continue;
    }
    kept_sizes.push_back(a.size(d));
    for (std::size_t i = 0; i < order.size(); ++i)
      if (order[i] == d) back[static_cast<std::size_t>(rank)] = static_cast<std::int64_t>(i);
    ++rank;
  }
  DimVector there(order.size(), 0);
  for (std::size_t i = 0; i < back.size(); ++i)
    there[static_cast<std::size_t>(back[i])] = static_cast<std::int64_t>(i);
  std::uint64_t last = 0;
  for (std::size_t i = order.size(); i < all.size(); ++i) last |= std::uint64_t{1} << i;
  const Tensor moved =
      shifts.defined() ? shifts.view(kept_sizes).permute(there).reshape({-1}) : shifts;
  const Tensor found = detail::gather(kind, a.permute(all), last, moved, dtype);
  return found.view(sizes).permute(back).reshape({-1});
}

}  // namespace

Tensor detail::gather(Gather kind, const Tensor& a, std::uint64_t reduced, const Tensor& shifts,
                      std::optional<DType> dtype) {
  const DType input = cpu::reduce_input(kind, a.dtype());
  const cpu::ReduceBlocks blocks = cpu::reduce_blocks(kind, input);
  if (blocks.row == nullptr)
    throw InvalidArgument(
        fmt::format("a reduction of {} that is not defined for it", dtype_name(a.dtype())));
  const DType result_dtype = dtype.value_or(cpu::reduce_accumulator(a.dtype()));
  std::int64_t kept = 1;
  for (std::size_t d = 0; d < static_cast<std::size_t>(a.dim()); ++d)
    if (((reduced >> d) & 1) == 0) kept *= a.sizes()[d];
  HostTurn host;
  if (vulkan::holds(a) && kept > 0) {
    const auto gathered = vulkan::gather_dtype(a.dtype(), a.device());
    if (a.numel() == 0) {  // the numbers that nothing gives
      const Tensor found = gather(kind, empty(a.sizes(), a.dtype()), reduced,
                                  shifts.defined() ? to_host(shifts) : shifts);
      return to(gathered ? to(found, *gathered) : found, a.device());
    }
    if (gathered) {
      Tensor result = empty({kept}, *gathered, a.device());
      if (vulkan::gather(kind, result, a, reduced, shifts)) return result;
    }
    constexpr const char* kNames[] = {"sum",  "prod",           "amax",
                                      "amin", "sum of squares", "logsumexp"};
    host.take(kNames[static_cast<std::size_t>(kind)], a.device());
  }
  const bool on_host = !a.is_meta() && a.device() == Device{};
  if (on_host && kept == a.numel() && kept > 0 && kind < Gather::kSumOfSquares) {
    const Tensor copied = empty(a.sizes(), result_dtype);  // each element by itself
    copy_(copied, a);
    return copied.view({kept});
  }
  if (kept > 1 && on_host)
    if (const DimVector order = kept_by_stride(a, reduced); order.size() > 1)
      return gather_by_stride(kind, a, reduced, shifts, order, result_dtype);
  Tensor result = empty({kept}, result_dtype, a.device());
  const Tensor wide = shifts.defined() ? to(shifts, DType::kF64) : shifts;
  if (kept > 0 && !a.is_meta()) GatherLoop(blocks, input, a, reduced, result, wide).run();
  return result;
}

}  // namespace tenon::ops
