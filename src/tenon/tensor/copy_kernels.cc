// Copies and fills: by a kernel of the device, or by loops on the host.
#include <algorithm>
#include <cstring>

#include "tenon/tensor/copy.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"
#include "tenon/tensor/strided_loop.h"
#include "tenon/tensor/strided_rows.h"

namespace tenon {
namespace {

// Items as bytes: how many, not what they are.
template <std::size_t kBytes>
struct Item {
  unsigned char bytes[kBytes];
};

template <std::size_t kBytes>
void copy_row(char** data, const std::int64_t* strides, std::int64_t length) {
  if (strides[0] == kBytes && strides[1] == kBytes) {
    std::memcpy(data[0], data[1], static_cast<std::size_t>(length) * kBytes);
    return;
  }
  if (strides[0] == kBytes && strides[1] % static_cast<std::int64_t>(kBytes) == 0)
    return detail::copy_steps(data[0], data[1], kBytes,
                              strides[1] / static_cast<std::int64_t>(kBytes), length);
  const std::int64_t target_step = strides[0], source_step = strides[1];
  char* target = data[0];
  const char* source = data[1];
  for (std::int64_t i = 0; i < length; ++i, target += target_step, source += source_step)
    std::memcpy(target, source, kBytes);
}

// A tile of a transposition, by way of a buffer: columns of the source are dense, and so are rows
// of the target. Walking across either instead would fetch a line for each item, and where its
// lines are a power of two apart, they would drive each other out of the cache.
template <std::size_t kBytes>
class Tile {
 public:
  static constexpr std::int64_t kSize = 32;

  void read(const char* source, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t c = 0; c < columns; ++c)
      std::memcpy(&items_[c * kSize], source + c * stride, static_cast<std::size_t>(rows) * kBytes);
  }
  void write(char* target, std::int64_t stride, std::int64_t rows, std::int64_t columns) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      auto* row = reinterpret_cast<Item<kBytes>*>(target + r * stride);
      for (std::int64_t c = 0; c < columns; ++c) row[c] = items_[c * kSize + r];
    }
  }

 private:
  Item<kBytes> items_[kSize * kSize];
};

template <std::size_t kBytes>
void copy_tiles(const StridedLoop& loop) {
  constexpr std::int64_t kTile = Tile<kBytes>::kSize;
  const std::int64_t columns = loop.size_at(0);
  const std::int64_t rows = loop.size_at(1);
  const std::int64_t tile_rows = (rows + kTile - 1) / kTile;
  const std::int64_t grain = std::max<std::int64_t>(1, StridedLoop::kGrain / (columns * kTile));
  parallel_for(0, tile_rows, grain, [&](std::int64_t begin, std::int64_t end) {
    Tile<kBytes> tile;
    for (std::int64_t r = begin * kTile; r < std::min(end * kTile, rows); r += kTile)
      for (std::int64_t c = 0; c < columns; c += kTile) {
        const std::int64_t height = std::min(kTile, rows - r), width = std::min(kTile, columns - c);
        const auto at = [&](std::size_t i) {
          return loop.data(i) + r * loop.stride_at(1, i) + c * loop.stride_at(0, i);
        };
        tile.read(at(1), loop.stride_at(0, 1), height, width);
        tile.write(at(0), loop.stride_at(1, 0), height, width);
      }
  });
}

// Few dense columns, whose rows lie one after the other.
template <std::size_t kBytes>
void merge_columns(const StridedLoop& loop) {
  const std::int64_t columns = loop.row_length();
  constexpr auto kItem = static_cast<std::int64_t>(kBytes);
  parallel_for(0, loop.size_at(1), StridedLoop::kGrain / columns,
               [&](std::int64_t begin, std::int64_t end) {
                 const char* from[4];
                 for (std::int64_t c = 0; c < columns; ++c)
                   from[c] = loop.data(1) + c * loop.row_stride(1) + begin * kItem;
                 detail::interleave(loop.data(0) + begin * columns * kItem, from, kItem, columns,
                                    end - begin);
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

template <std::size_t kBytes>
void copy_same_dtype(const StridedLoop& loop) {
  constexpr auto kItem = static_cast<std::int64_t>(kBytes);
  constexpr std::int64_t kShortBytes = 512;
  const std::int64_t row_bytes = loop.row_length() * kItem;
  if (loop.ndim() == 2 && loop.row_stride(0) == kItem && loop.row_stride(1) == kItem &&
      loop.stride_at(1, 0) == row_bytes && loop.stride_at(1, 1) == 0 && row_bytes <= kShortBytes)
    return repeat_row(loop.data(0), loop.data(1), row_bytes, loop.size_at(1));
  const bool few = loop.row_length() >= 2 && loop.row_length() <= 4;
  if (few && loop.ndim() == 2 && loop.row_stride(0) == kItem && loop.stride_at(1, 0) == row_bytes &&
      loop.stride_at(1, 1) == kItem)
    return merge_columns<kBytes>(loop);
  const bool transposes = loop.ndim() == 2 && loop.row_stride(0) == kItem &&
                          loop.row_stride(1) > kItem && loop.stride_at(1, 1) == kItem &&
                          loop.size_at(0) > 16 && loop.size_at(1) > 16;
  if (transposes) return copy_tiles<kBytes>(loop);
  loop.run_parallel([](char** data, const std::int64_t* strides, std::int64_t length) {
    copy_row<kBytes>(data, strides, length);
  });
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
  if (target.dtype() != source.dtype()) {
    loop.run_parallel(conversion_row(target.dtype(), source.dtype()));
    return;
  }
  switch (target.item_size()) {
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
