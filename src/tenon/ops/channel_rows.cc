#include "tenon/ops/channel_rows.h"

#include <algorithm>
#include <cmath>

#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/channel_rows.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {
namespace {

// Rows in pieces, by sizes alone: small ones that stay in the caches, and parts of some pieces,
// which threads take.
class RowPieces {
 public:
  explicit RowPieces(const Tensor& a)
      : channels_(a.size(1)), rows_(a.numel() / channels_), dtype_(a.dtype()) {
    constexpr std::int64_t kElements = 4096, kMost = 256, kLeast = 16;
    constexpr std::int64_t kPartElements = 16384, kMostParts = 32;
    piece_ = std::clamp(kElements / channels_, kLeast, kMost);
    const std::int64_t wanted = std::max(kPartElements / channels_, rows_ / kMostParts + 1);
    part_ = (wanted + piece_ - 1) / piece_ * piece_;
  }
  std::int64_t channels() const { return channels_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t parts() const { return (rows_ + part_ - 1) / part_; }

  // body(part, rows, elements of each tensor, which `result` is written back to) for each piece;
  // the rows of one part come in order, on one thread.
  template <typename T, typename Body>
  void run(std::initializer_list<const Tensor*> inputs, const Tensor& result, Body&& body) const {
    const bool is_narrow = dtype_ != dtype_of<T>();
    const std::int64_t room = piece_ * channels_;
    const auto item = static_cast<std::int64_t>(item_size(dtype_));
    cpu::Workspaces rooms(is_narrow ? static_cast<std::size_t>(3 * room) * sizeof(T) : 0, parts());
    const auto piece = [&](T* at, std::int64_t part, std::int64_t first, std::int64_t rows) {
      const std::int64_t begin = first * channels_ * item, count = rows * channels_;
      T* elements[3] = {at, at + room, at + 2 * room};
      std::size_t number = 0;
      for (const Tensor* input : inputs) {
        auto* from = static_cast<char*>(const_cast<void*>(input->const_data_ptr())) + begin;
        if (is_narrow)
          widen(elements[number], from, count);
        else
          elements[number] = reinterpret_cast<T*>(from);
        ++number;
      }
      if (!result.defined()) return body(part, rows, elements);
      char* const to = static_cast<char*>(result.data_ptr()) + begin;
      if (!is_narrow) elements[number] = reinterpret_cast<T*>(to);
      body(part, rows, elements);
      if (is_narrow)
        tenon::detail::convert_elements(dtype_, to, dtype_of<T>(), elements[number], count);
    };
    parallel_for(0, parts(), 1, [&](std::int64_t begin, std::int64_t end) {
      char* const taken = rooms.take();
      T* const at = reinterpret_cast<T*>(taken);
      for (std::int64_t part = begin; part < end; ++part) {
        const std::int64_t last = std::min(rows_, (part + 1) * part_);
        for (std::int64_t first = part * part_; first < last; first += piece_)
          piece(at, part, first, std::min(piece_, last - first));
      }
      rooms.give(taken);
    });
  }

  template <typename T>
  void widen(T* to, const char* from, std::int64_t count) const {
    tenon::detail::convert_elements(dtype_of<T>(), to, dtype_, from, count);
  }

 private:
  std::int64_t channels_, rows_;
  DType dtype_;
  std::int64_t piece_, part_;
};

// Two sums for each channel: pieces have sums of T, which are added up in f64, in order.
template <typename T>
class ChannelSums {
 public:
  explicit ChannelSums(const RowPieces& pieces)
      : channels_(static_cast<std::size_t>(pieces.channels())),
        parts_(static_cast<std::size_t>(pieces.parts())),
        all_(2 * channels_ * parts_) {}
  // add(sums, others) adds a piece's, of which there are none before.
  template <typename Add>
  void piece(std::int64_t part, Add&& add) {
    std::vector<T> sums(2 * channels_);
    add(sums.data(), sums.data() + channels_);
    double* const to = all_.data() + static_cast<std::size_t>(part) * 2 * channels_;
    for (std::size_t i = 0; i < sums.size(); ++i) to[i] += static_cast<double>(sums[i]);
  }
  ChannelNumbers total(std::size_t which) const {
    ChannelNumbers total(channels_);
    for (std::size_t part = 0; part < parts_; ++part)
      for (std::size_t c = 0; c < channels_; ++c)
        total[c] += all_[(2 * part + which) * channels_ + c];
    return total;
  }

 private:
  const std::size_t channels_, parts_;
  std::vector<double> all_;
};

template <typename T>
std::vector<T> as(const ChannelNumbers& numbers) {
  return {numbers.begin(), numbers.end()};
}

// Shifted by the first row, so that little is lost where a mean is far from zero.
template <typename T>
void moments(const Tensor& a, ChannelNumbers& mean, ChannelNumbers& variance) {
  const RowPieces pieces(a);
  std::vector<T> shift(static_cast<std::size_t>(pieces.channels()));
  pieces.widen(shift.data(), static_cast<const char*>(a.const_data_ptr()), pieces.channels());
  const auto add = cpu::channel_row_kernels<T>().moments;
  ChannelSums<T> all(pieces);
  pieces.run<T>({&a}, {}, [&](std::int64_t part, std::int64_t rows, T* const* elements) {
    all.piece(part, [&](T* sums, T* squares) {
      add(elements[0], shift.data(), rows, pieces.channels(), sums, squares);
    });
  });
  mean = all.total(0);
  variance = all.total(1);
  const auto count = static_cast<double>(pieces.rows());
  for (std::size_t c = 0; c < mean.size(); ++c) {
    const double moved = mean[c] / count;
    mean[c] = static_cast<double>(shift[c]) + moved;
    variance[c] = std::max(0.0, variance[c] / count - moved * moved);
  }
}

// What overflowed is computed again in f64.
bool are_finite(const ChannelNumbers& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
}

template <typename T>
ChannelGradients gradients(const Tensor& gradient, const Tensor& a, const ChannelNumbers& mean,
                           const ChannelNumbers& scale, const ChannelNumbers& weight,
                           bool own_moments) {
  const RowPieces pieces(a);
  const std::int64_t channels = pieces.channels();
  const cpu::ChannelRowKernels<T>& kernels = cpu::channel_row_kernels<T>();
  const std::vector<T> means = as<T>(mean);
  ChannelSums<T> all(pieces);
  pieces.run<T>({&gradient, &a}, {},
                [&](std::int64_t part, std::int64_t rows, T* const* elements) {
                  all.piece(part, [&](T* sums, T* products) {
                    kernels.products(elements[0], elements[1], means.data(), rows, channels, sums,
                                     products);
                  });
                });
  ChannelGradients found{empty_like(a), all.total(1), all.total(0)};
  const auto count = static_cast<double>(pieces.rows());
  std::vector<T> of_g, of_x, rest;
  for (std::size_t c = 0; c < mean.size(); ++c) {
    found.weight[c] *= scale[c];
    const double factor = scale[c] * weight[c], share = own_moments ? factor / count : 0;
    of_g.push_back(static_cast<T>(factor));
    of_x.push_back(static_cast<T>(-share * scale[c] * found.weight[c]));
    rest.push_back(static_cast<T>(-share * found.bias[c]));
  }
  pieces.run<T>({&gradient, &a}, found.input,
                [&](std::int64_t, std::int64_t rows, T* const* elements) {
                  kernels.combine(elements[2], elements[0], elements[1], of_g.data(), means.data(),
                                  of_x.data(), rest.data(), rows, channels);
                });
  return found;
}

bool is_double(const Tensor& a) { return a.dtype() == DType::kF64; }

}  // namespace

bool is_channels_last(const Tensor& a) {
  return (a.dim() == 4 && a.is_contiguous(MemoryFormat::kChannelsLast)) ||
         (a.dim() == 5 && a.is_contiguous(MemoryFormat::kChannelsLast3d));
}

bool has_channel_rows(const Tensor& a) {
  if (a.dim() < 2 || a.device() != Device{} || a.numel() == 0 || !is_floating(a.dtype()) ||
      is_float8(a.dtype()))
    return false;
  if (a.is_contiguous()) return a.numel() == a.size(0) * a.size(1);
  return is_channels_last(a);
}

void moments_of_channels(const Tensor& a, ChannelNumbers& mean, ChannelNumbers& variance) {
  is_double(a) ? moments<double>(a, mean, variance) : moments<float>(a, mean, variance);
  if (!is_double(a) && !are_finite(variance)) moments<double>(to(a, DType::kF64), mean, variance);
}

Tensor scale_channels(const Tensor& a, const ChannelNumbers& factor, const ChannelNumbers& shift) {
  const RowPieces pieces(a);
  const Tensor out = empty_like(a);
  const auto run = [&]<typename T>() {
    const std::vector<T> factors = as<T>(factor), shifts = as<T>(shift);
    const auto scale = cpu::channel_row_kernels<T>().scale;
    pieces.run<T>({&a}, out, [&](std::int64_t, std::int64_t rows, T* const* elements) {
      scale(elements[1], elements[0], factors.data(), shifts.data(), rows, pieces.channels());
    });
  };
  is_double(a) ? run.operator()<double>() : run.operator()<float>();
  return out;
}

ChannelGradients channel_gradients(const Tensor& gradient, const Tensor& a,
                                   const ChannelNumbers& mean, const ChannelNumbers& scale,
                                   const ChannelNumbers& weight, bool own_moments) {
  return is_double(a) ? gradients<double>(gradient, a, mean, scale, weight, own_moments)
                      : gradients<float>(gradient, a, mean, scale, weight, own_moments);
}

}  // namespace tenon::ops
