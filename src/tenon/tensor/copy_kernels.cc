// Copies and fills: by a kernel of the device, or by loops on the host.
#include <algorithm>
#include <cstring>

#include "tenon/tensor/copy.h"
#include "tenon/tensor/copy_bytes.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"
#include "tenon/tensor/strided_loop.h"
#include "tenon/tensor/strided_rows.h"

namespace tenon {
namespace {

using detail::Item;

template <std::size_t kBytes>
void copy_row(char** data, const std::int64_t* strides, std::int64_t length) {
  if (strides[0] == kBytes && strides[1] == kBytes)
    return detail::copy_bytes(data[0], data[1], static_cast<std::size_t>(length) * kBytes);
  if (strides[0] == kBytes && strides[1] % static_cast<std::int64_t>(kBytes) == 0)
    return detail::copy_steps(data[0], data[1], kBytes,
                              strides[1] / static_cast<std::int64_t>(kBytes), length);
  const std::int64_t target_step = strides[0], source_step = strides[1];
  char* target = data[0];
  const char* source = data[1];
  for (std::int64_t i = 0; i < length; ++i, target += target_step, source += source_step)
    std::memcpy(target, source, kBytes);
}

// A copy that transposes: the source is dense along a dimension, and the target along those inside
// it, whose elements are columns here.
struct Transposition {
  std::size_t along = 0;  // 0 where the copy is none
  std::int64_t columns = 1;
};
Transposition transposition(const StridedLoop& loop, std::int64_t item) {
  constexpr std::int64_t kFewest = 8;
  Transposition t;
  if (loop.row_stride(1) <= item) return t;
  for (std::size_t d = 0; d < loop.ndim(); ++d) {
    if (loop.stride_at(d, 1) == item) {
      if (loop.size_at(d) >= kFewest && t.columns >= kFewest) t.along = d;
      return t;
    }
    if (loop.stride_at(d, 0) != t.columns * item) return t;
    t.columns *= loop.size_at(d);
  }
  return t;
}

// Where the element `index` of the dimensions [first, last) lies.
std::int64_t offset_of(const StridedLoop& loop, std::size_t operand, std::size_t first,
                       std::size_t last, std::int64_t index) {
  std::int64_t offset = 0;
  for (std::size_t d = first; d < last; ++d) {
    offset += index % loop.size_at(d) * loop.stride_at(d, operand);
    index /= loop.size_at(d);
  }
  return offset;
}

// By tiles in a buffer: columns of the source are dense, and so are rows of the target. Walking
// across either instead would fetch a line for each item, and where its lines are a power of two
// apart, they would drive each other out of the cache.
template <std::size_t kBytes>
void copy_tiles(const StridedLoop& loop, const Transposition& t) {
  constexpr std::int64_t kTile = 32;
  constexpr auto kItem = static_cast<std::int64_t>(kBytes);
  const std::int64_t rows = loop.size_at(t.along), target_stride = loop.stride_at(t.along, 0);
  const std::int64_t tile_rows = (rows + kTile - 1) / kTile;
  const std::int64_t outer = loop.numel() / (rows * t.columns);
  const std::int64_t grain =
      std::max<std::int64_t>(1, StridedLoop::kGrain / (t.columns * std::min(rows, kTile)));
  parallel_for(0, outer * tile_rows, grain, [&](std::int64_t begin, std::int64_t end) {
    Item<kBytes> tile[kTile * kTile];
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t r = task % tile_rows * kTile, height = std::min(kTile, rows - r);
      const auto start = [&](std::size_t i) {
        return loop.data(i) + r * loop.stride_at(t.along, i) +
               offset_of(loop, i, t.along + 1, loop.ndim(), task / tile_rows);
      };
      char* const target = start(0);
      const char* const source = start(1);
      for (std::int64_t c = 0; c < t.columns; c += kTile) {
        const std::int64_t width = std::min(kTile, t.columns - c);
        for (std::int64_t i = 0; i < width; ++i)
          std::memcpy(&tile[i * kTile], source + offset_of(loop, 1, 0, t.along, c + i),
                      static_cast<std::size_t>(height) * kBytes);
        detail::transpose(target + c * kItem, target_stride, reinterpret_cast<const char*>(tile),
                          kTile * kItem, kItem, height, width);
      }
    }
  });
}

// Few dense columns, whose rows lie one after the other; any dimensions outside of them.
template <std::size_t kBytes>
void merge_columns(const StridedLoop& loop) {
  const std::int64_t columns = loop.row_length(), rows = loop.size_at(1);
  constexpr auto kItem = static_cast<std::int64_t>(kBytes);
  parallel_for(0, loop.numel() / columns, StridedLoop::kGrain / columns,
               [&](std::int64_t begin, std::int64_t end) {
                 while (begin < end) {
                   const std::int64_t row = begin % rows, some = std::min(end - begin, rows - row);
                   const auto start = [&](std::size_t i) {
                     return loop.data(i) + offset_of(loop, i, 2, loop.ndim(), begin / rows);
                   };
                   const char* from[4];
                   for (std::int64_t c = 0; c < columns; ++c)
                     from[c] = start(1) + c * loop.row_stride(1) + row * kItem;
                   detail::interleave(start(0) + row * columns * kItem, from, kItem, columns, some);
                   begin += some;
                 }
               });
}

// One short row in place of many, one after the other: by copies of what is there already.
void repeat_row(char* target, const char* row, std::int64_t row_bytes, std::int64_t rows) {
  const std::int64_t grain = std::max<std::int64_t>(1, StridedLoop::kGrain / row_bytes);
  parallel_for(0, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    char* const first = target + begin * row_bytes;
    const std::int64_t bytes = (end - begin) * row_bytes;
    std::memcpy(first, row, static_cast<std::size_t>(row_bytes));
    for (std::int64_t done = row_bytes; done < bytes;) {
      const std::int64_t more = std::min({done, bytes - done, std::int64_t{8192}});
      std::memcpy(first + done, first, static_cast<std::size_t>(more / row_bytes * row_bytes));
      done += more / row_bytes * row_bytes;
    }
  });
}

// Rows that are dense in the target, and in the source or short. What runs over them is not inlined
// into the loop for any number of operands, here and below: GCC would warn that the second one's
// pointer may be missing there.
void copy_rows(const StridedLoop& loop, std::int64_t item) {
  const std::int64_t length = loop.row_length(), step = loop.row_stride(1);
  loop.over_rows().run_parallel(
      [=](char** data, const std::int64_t* strides, std::int64_t rows) __attribute__((noinline)) {
        detail::copy_rows(data[0], strides[0], data[1], strides[1], item, step, length, rows);
      },
      std::max<std::int64_t>(1, StridedLoop::kGrain / length));
}

template <std::size_t kBytes>
void copy_same_dtype(const StridedLoop& loop) {
  constexpr auto kItem = static_cast<std::int64_t>(kBytes);
  constexpr std::int64_t kShortBytes = 512, kShort = 256;  // of rows
  const std::int64_t row_bytes = loop.row_length() * kItem;
  if (loop.ndim() == 2 && loop.row_stride(0) == kItem && loop.row_stride(1) == kItem &&
      loop.stride_at(1, 0) == row_bytes && loop.stride_at(1, 1) == 0 && row_bytes <= kShortBytes)
    return repeat_row(loop.data(0), loop.data(1), row_bytes, loop.size_at(1));
  const bool few = loop.row_length() >= 2 && loop.row_length() <= 4;
  if (few && loop.ndim() >= 2 && loop.row_stride(0) == kItem && loop.stride_at(1, 0) == row_bytes &&
      loop.stride_at(1, 1) == kItem)
    return merge_columns<kBytes>(loop);
  if (const Transposition t = transposition(loop, kItem); t.along != 0)
    return copy_tiles<kBytes>(loop, t);
  // Short dense rows are items themselves.
  if constexpr (kBytes < 16)
    if (loop.ndim() > 1 && loop.row_stride(0) == kItem && loop.row_stride(1) == kItem) {
      if (row_bytes == 2 * kItem) return copy_same_dtype<2 * kBytes>(loop.over_rows());
      if (row_bytes == 4 * kItem && kBytes < 8)
        return copy_same_dtype<std::min<std::size_t>(16, 4 * kBytes)>(loop.over_rows());
      if (row_bytes == 8 * kItem && kBytes < 4)
        return copy_same_dtype<std::min<std::size_t>(16, 8 * kBytes)>(loop.over_rows());
    }
  if (loop.ndim() > 1 && loop.row_stride(0) == kItem &&
      (loop.row_stride(1) == kItem || loop.row_length() <= kShort))
    return copy_rows(loop, kItem);
  loop.run_parallel([](char** data, const std::int64_t* strides, std::int64_t length) {
    copy_row<kBytes>(data, strides, length);
  });
}

constexpr std::int64_t kLongestGathered = 256;  // elements of a row

// Whether the rows of a conversion go together: short ones, or those whose source is gathered
// anyway, into a target in which they lie one after the other.
bool are_rows_to_gather(const StridedLoop& loop, std::int64_t to_item, std::int64_t from_item) {
  constexpr std::int64_t kLongestDense = 64;
  const std::int64_t length = loop.row_length();
  const std::int64_t longest =
      loop.row_stride(1) == from_item ? kLongestDense : kLongestGathered;
  return loop.ndim() > 1 && length <= longest && loop.row_stride(0) == to_item &&
         loop.stride_at(1, 0) == length * to_item;
}

// Several rows as one block.
void convert_panels(const StridedLoop& loop, detail::RowFunction convert, std::int64_t to_item,
                    std::int64_t from_item) {
  const std::int64_t length = loop.row_length(), step = loop.row_stride(1);
  loop.over_rows().run_parallel(
      [=](char** data, const std::int64_t* strides, std::int64_t rows) __attribute__((noinline)) {
        alignas(64) char panel[kLongestGathered * 16];
        const std::int64_t row_bytes = length * from_item;
        const std::int64_t most = static_cast<std::int64_t>(sizeof panel) / row_bytes;
        for (std::int64_t r = 0; r < rows; r += most) {
          const std::int64_t some = std::min(most, rows - r);
          detail::copy_rows(panel, row_bytes, data[1] + r * strides[1], strides[1], from_item, step,
                            length, some);
          char* pair[2] = {data[0] + r * strides[0], panel};
          const std::int64_t items[2] = {to_item, from_item};
          convert(pair, items, some * length);
        }
      },
      std::max<std::int64_t>(1, StridedLoop::kGrain / length));
}

}  // namespace

void detail::copy_elements(const Tensor& target, const Tensor& source) {
  if (target.numel() == 0) return;
  HostTurn host;
  if (vulkan::holds(target) && source.device() == target.device()) {
    if (vulkan::copy(target, source)) return;
    host.take("copy", target.device());
  }
  const StridedLoop loop = StridedLoop::over(target.sizes(), {&target, &source});
  const auto item = static_cast<std::int64_t>(target.item_size());
  if (target.dtype() == source.dtype()) return copy_items(loop, item);
  const RowFunction convert = conversion_row(target.dtype(), source.dtype());
  const auto from_item = static_cast<std::int64_t>(source.item_size());
  if (are_rows_to_gather(loop, item, from_item))
    convert_panels(loop, convert, item, from_item);
  else
    loop.run_parallel(convert);
}

void detail::copy_items(const StridedLoop& loop, std::int64_t item) {
  switch (item) {
    case 1:
      return copy_same_dtype<1>(loop);
    case 2:
      return copy_same_dtype<2>(loop);
    case 4:
      return copy_same_dtype<4>(loop);
    case 8:
      return copy_same_dtype<8>(loop);
    default:
      return copy_same_dtype<16>(loop);
  }
}

void detail::fill_elements(const Tensor& target, const Scalar& value) {
  if (target.numel() == 0) return;
  HostTurn host;
  if (vulkan::holds(target)) {
    if (vulkan::fill(target, value)) return;
    host.take("fill", target.device());
  }
  const StridedLoop loop = StridedLoop::over(target.sizes(), {&target});
  visit_any_dtype(target.dtype(), [&]<typename T>() {
    const T element = value.to<T>();
    loop.run_parallel([element](char** data, const std::int64_t* strides, std::int64_t length) {
      if (strides[0] == sizeof(T))
        return detail::copy_steps(data[0], &element, sizeof(T), 0, length);
      for (std::int64_t i = 0; i < length; ++i)
        *reinterpret_cast<T*>(data[0] + i * strides[0]) = element;
    });
  });
}

}  // namespace tenon
