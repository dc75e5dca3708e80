#include "tenon/ops/softmax.h"

#include <fmt/format.h>

#include "tenon/ops/binary.h"
#include "tenon/ops/dense_lines.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/softmax_rows.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

// Some lines of one function: rows one after the other, or columns side by side.
struct Function {
  void (*row)(void* out, const void* in, std::int64_t count);
  cpu::ColumnFunctions::Function columns;
  std::int64_t turned_below;  // rows shorter than that are turned into columns
};

// to[c][r] = from[r][c].
template <typename T>
void turn(void* to, const void* from, std::int64_t rows, std::int64_t columns,
          std::int64_t to_stride, std::int64_t from_stride) {
  auto* out = static_cast<T*>(to);
  const auto* in = static_cast<const T*>(from);
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < rows; ++r) out[c * to_stride + r] = in[r * from_stride + c];
}

// Softmax of a dense tensor's lines. 16-bit floats are widened in a thread's workspace, some lines
// at a time. Rows that vectors would hardly fill are turned there into columns.
class LineWork {
 public:
  LineWork(const Tensor& out, const Tensor& in, std::int64_t dim, const Function& function)
      : dtype_(in.dtype()),
        compute_(compute_dtype(in.dtype())),
        item_(static_cast<std::int64_t>(item_size(dtype_))),
        compute_item_(static_cast<std::int64_t>(item_size(compute_))),
        lines_(in, dim),
        function_(function),
        from_(static_cast<const char*>(in.const_data_ptr())),
        to_(static_cast<char*>(out.data_ptr())) {}

  void run() const { lines_.inner == 1 ? run_rows() : run_columns(); }

 private:
  static constexpr std::int64_t kTurned = 64, kBatch = 4096;

  bool is_wide() const { return dtype_ == compute_; }
  bool are_short() const {
    return lines_.length < function_.turned_below && lines_.outer >= kTurned;
  }

  void run_rows() const {
    const std::int64_t length = lines_.length;
    const std::int64_t batch =
        are_short() ? kTurned : std::max<std::int64_t>(1, kBatch / length);
    const std::int64_t batches = (lines_.outer + batch - 1) / batch;
    const auto room_bytes =
        static_cast<std::size_t>((is_wide() ? 0 : 2 * batch * length * compute_item_) +
                                 (are_short() ? kTurned * length * compute_item_ : 0));
    cpu::Workspaces rooms(room_bytes, batches);
    parallel_for(0, batches, even_grain(batches, 16384 / (batch * length)),
                 [&](std::int64_t begin, std::int64_t end) {
                   char* const room = rooms.take();
                   for (std::int64_t i = begin; i < end; ++i)
                     batch_of_rows(i * batch, std::min(batch, lines_.outer - i * batch), room);
                   rooms.give(room);
                 });
  }

  void batch_of_rows(std::int64_t first, std::int64_t rows, char* room) const {
    const std::int64_t length = lines_.length, elements = rows * length;
    const char* in = from_ + first * length * item_;
    char* out = to_ + first * length * item_;
    if (!is_wide()) {
      // Apart: what is written would delay reading beside it.
      char* const wide = room;
      char* const results = wide + elements * compute_item_;
      widen(wide, in, elements);
      compute_rows(results, wide, rows, results + elements * compute_item_);
      return narrow(out, results, elements);
    }
    compute_rows(out, in, rows, room);
  }

  void compute_rows(char* out, const char* in, std::int64_t rows, char* turned) const {
    const std::int64_t length = lines_.length;
    if (!are_short()) {
      for (std::int64_t r = 0; r < rows; ++r)
        function_.row(out + r * length * compute_item_, in + r * length * compute_item_, length);
      return;
    }
    const auto by_item = [&](auto&& f) { compute_item_ == 4 ? f(float()) : f(double()); };
    by_item([&](auto t) { turn<decltype(t)>(turned, in, rows, length, kTurned, length); });
    function_.columns(turned, turned, length, kTurned, rows);
    by_item([&](auto t) { turn<decltype(t)>(out, turned, length, rows, length, kTurned); });
  }

  void run_columns() const {
    const std::int64_t length = lines_.length, inner = lines_.inner;
    const std::int64_t width = lines_.strip(item_);
    cpu::Workspaces rooms(
        is_wide() ? 0 : static_cast<std::size_t>(length * lines_.widest(width) * compute_item_),
        lines_.outer * lines_.strips(width));
    lines_.for_each(item_, [&](std::int64_t first, std::int64_t count) {
      const char* in = from_ + first * item_;
      char* out = to_ + first * item_;
      if (is_wide()) return function_.columns(out, in, length, inner, count);
      char* const wide = rooms.take();
      // Rows without a gap between them are one.
      const std::int64_t rows = count == inner ? 1 : length, row = length / rows * count;
      for (std::int64_t r = 0; r < rows; ++r) {
        fetch<0>(in + (r + kAhead) * inner * item_, row);
        widen(wide + r * row * compute_item_, in + r * inner * item_, row);
      }
      function_.columns(wide, wide, length, count, count);
      for (std::int64_t r = 0; r < rows; ++r) {
        fetch<1>(out + (r + kAhead) * inner * item_, row);
        narrow(out + r * inner * item_, wide + r * row * compute_item_, row);
      }
      rooms.give(wide);
    });
  }

  // Part of a row that will be read, or written: rows may be pages apart, which processors do not
  // fetch ahead by themselves.
  static constexpr std::int64_t kAhead = 16;
  template <int kWrite>
  void fetch(const char* row, std::int64_t count) const {
    for (std::int64_t at = 0; at < std::min<std::int64_t>(count * item_, 512); at += 64)
      __builtin_prefetch(row + at, kWrite);
  }

  void widen(char* to, const char* from, std::int64_t count) const {
    tenon::detail::convert_elements(compute_, to, dtype_, from, count);
  }
  void narrow(char* to, const char* from, std::int64_t count) const {
    tenon::detail::convert_elements(dtype_, to, compute_, from, count);
  }

  const DType dtype_, compute_;
  const std::int64_t item_, compute_item_;
  const DenseLines lines_;
  const Function function_;
  const char* const from_;
  char* const to_;
};

// The result has the order of dimensions of the input, where that is dense.
Tensor along(const char* what, vulkan::Rows kind, const Tensor& a, std::int64_t dim,
             const Function& function) {
  device_to_offer(what, {&a});
  if (!is_floating(a.dtype()))
    throw InvalidArgument(
        fmt::format("{}: of {}; convert it to floating point first", what, dtype_name(a.dtype())));
  const std::int64_t d = wrap_dim(dim, a.dim(), what);
  const Tensor input = dense(a);
  const Tensor out = empty_like(input);
  if (out.is_meta() || out.numel() == 0) return out;
  HostTurn host;
  if (vulkan::holds(input)) {
    const Tensor wide = to(input, compute_dtype(a.dtype())), result = empty_like(wide);
    const DenseLines lines(wide, d);
    if (vulkan::rows(kind, result, lines.length, lines.inner, wide)) return to(result, a.dtype());
    host.take(what, out.device());
  }
  LineWork(out, input, d, function).run();
  return out;
}

// Whether lines along that dimension have one element: what is left of it below itself is 0, or NaN
// where it is infinite.
bool has_single(const char* what, const Tensor& a, std::int64_t dim) {
  return is_floating(a.dtype()) && (a.dim() == 0 || a.size(wrap_dim(dim, a.dim(), what)) == 1);
}

}  // namespace

Tensor detail::softmax(const Tensor& a, std::int64_t dim) {
  if (has_single("softmax", a, dim)) return add_(sub(a, a), 1);
  const DType compute = compute_dtype(a.dtype());
  return along("softmax", vulkan::Rows::kSoftmax, a, dim,
               {cpu::row_functions(compute).softmax, cpu::column_functions(compute).softmax, 10});
}

Tensor detail::log_softmax(const Tensor& a, std::int64_t dim) {
  if (has_single("log_softmax", a, dim)) return sub(a, a);
  const DType compute = compute_dtype(a.dtype());
  return along("log_softmax", vulkan::Rows::kLogSoftmax, a, dim,
               {cpu::row_functions(compute).log_softmax,
                cpu::column_functions(compute).log_softmax, 32});
}

namespace {

constexpr std::int64_t kShortest = 32, kRowsTogether = 64;

// log_sums of short rows, which are turned into columns.
template <typename T>
void log_sums_of_short_rows(T* out, const T* in, std::int64_t rows, std::int64_t length) {
  const cpu::ColumnFunctions columns = cpu::column_functions(dtype_of<T>());
  const std::int64_t batches = (rows + kRowsTogether - 1) / kRowsTogether;
  const std::int64_t grain = even_grain(batches, 16384 / (kRowsTogether * length));
  parallel_for(0, batches, grain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) T turned[kShortest * kRowsTogether];
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i * kRowsTogether;
      const std::int64_t count = std::min(kRowsTogether, rows - first);
      turn<T>(turned, in + first * length, count, length, kRowsTogether, length);
      columns.log_sum(out + first, turned, length, kRowsTogether, count);
    }
  });
}

}  // namespace

Tensor detail::log_sums(const Tensor& a, std::int64_t dim) {
  const Tensor input = contiguous(to(a, compute_dtype(a.dtype())));
  const DenseLines lines(input, dim);
  const Tensor out = empty({lines.outer * lines.inner}, input.dtype());
  const cpu::RowFunctions rows = cpu::row_functions(input.dtype());
  const cpu::ColumnFunctions columns = cpu::column_functions(input.dtype());
  if (lines.inner == 1 && lines.length < kShortest && lines.outer >= kRowsTogether) {
    if (input.dtype() == DType::kF64)
      log_sums_of_short_rows(out.data_ptr<double>(), input.const_data_ptr<double>(), lines.outer,
                             lines.length);
    else
      log_sums_of_short_rows(out.data_ptr<float>(), input.const_data_ptr<float>(), lines.outer,
                             lines.length);
    return out;
  }
  const auto item = static_cast<std::int64_t>(input.item_size());
  const auto* from = static_cast<const char*>(input.const_data_ptr());
  auto* to = static_cast<char*>(out.data_ptr());
  lines.for_each(item, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t slice = lines.length * lines.inner;
    char* const at = to + (first / slice * lines.inner + first % slice) * item;
    if (lines.inner != 1)
      return columns.log_sum(at, from + first * item, lines.length, lines.inner, count);
    const double sum = rows.log_sum(from + first * item, lines.length);
    if (item == 4)
      *reinterpret_cast<float*>(at) = static_cast<float>(sum);
    else
      *reinterpret_cast<double*>(at) = sum;
  });
  return out;
}

}  // namespace tenon::ops
