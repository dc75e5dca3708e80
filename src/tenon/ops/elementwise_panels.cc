#include "tenon/ops/elementwise_panels.h"

#include <algorithm>
#include <cstring>

#include "tenon/ops/indices.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/strided_rows.h"

namespace tenon::ops {
namespace {

constexpr std::int64_t kPanelBytes = 8192;
constexpr std::int64_t kLongest = 48;  // of rows that may have to be gathered
constexpr std::int64_t kLongestBytes = 1024;  // of rows that are copied or repeat an element
constexpr std::int64_t kSlack = 8;     // elements that may be written behind a panel
constexpr std::size_t kRoom = kPanelBytes + kSlack * 16;

// `rows` rows of `length` elements, whose distances in bytes are `step` and `row_step`.
struct Panel {
  const char* data;
  std::int64_t step, row_step, length, rows;
};

template <typename T>
void repeat_elements(T* to, const Panel& p) {
  const char* row = p.data;
  for (std::int64_t r = 0; r < p.rows; ++r, row += p.row_step, to += p.length) {
    const T item = *reinterpret_cast<const T*>(row);
    for (std::int64_t c = 0; c < p.length; c += kSlack)
      for (std::int64_t i = 0; i < kSlack; ++i) to[c + i] = item;  // what is behind comes later
  }
}

void gather_panel(char* to, const Panel& p, std::int64_t item) {
  if (p.step == 0)
    return visit_bytes(static_cast<std::size_t>(item), [&](auto element) {
      repeat_elements(reinterpret_cast<decltype(element)*>(to), p);
    });
  const std::int64_t row_bytes = p.length * item;
  const std::int64_t read = p.row_step == 0 ? 1 : p.rows;  // one row for all is read once
  tenon::detail::copy_rows(to, row_bytes, p.data, p.row_step, item, p.step, p.length, read);
  for (std::int64_t done = read; done < p.rows;) {
    const std::int64_t more = std::min(done, p.rows - done);
    std::memcpy(to + done * row_bytes, to, static_cast<std::size_t>(more * row_bytes));
    done += more;
  }
}

template <typename T>
void scatter_panel(const T* from, const Panel& p) {
  char* row = const_cast<char*>(p.data);
  for (std::int64_t r = 0; r < p.rows; ++r, row += p.row_step)
    for (std::int64_t c = 0; c < p.length; ++c)
      *reinterpret_cast<T*>(row + c * p.step) = *from++;
}

// One operand, the output first.
struct Operand {
  tenon::detail::RowFunction convert = nullptr;  // null where the dtype is the function's
  std::int64_t item = 0, block_item = 0;         // bytes of its own elements and of the function's
  bool dense = false;                            // a panel is a block already
};

struct Buffers {
  alignas(64) char own[kRoom];  // a panel in the operand's dtype
  alignas(64) char blocks[kMaxInputs + 1][kRoom];
  Panel held[kMaxInputs] = {};        // what a block holds
};

class PanelRunner {
 public:
  PanelRunner(const ElementwisePlan& plan, const StridedLoop& loop, const Tensor& out,
              const Tensor* const* inputs)
      : plan_(plan), loop_(loop) {
    for (std::size_t i = 0; i <= plan.input_count; ++i) {
      const DType own = (i == 0 ? out : *inputs[i - 1]).dtype();
      const DType wanted = i == 0 ? plan.result_dtype : plan.input_dtypes[i - 1];
      Operand& o = operands_[i];
      o.item = static_cast<std::int64_t>(item_size(own));
      o.block_item = static_cast<std::int64_t>(item_size(wanted));
      if (own != wanted)
        o.convert = i == 0 ? tenon::detail::conversion_row(own, wanted)
                           : tenon::detail::conversion_row(wanted, own);
      o.dense = loop.row_stride(i) == o.item &&
                loop.stride_at(1, i) == loop.row_length() * o.item;
      if (i == 0 || i > 2 || plan.single[i - 1] == nullptr) continue;
      if (loop.row_stride(i) != 0 || loop.stride_at(1, i) != 0) continue;
      single_ = i;
      load_single_ = tenon::detail::conversion_row(compute_dtype(wanted), own);
    }
  }

  // Rows of a panel.
  std::int64_t most_rows() const {
    std::int64_t widest = 0;
    for (std::size_t i = 0; i <= plan_.input_count; ++i)
      widest = std::max({widest, operands_[i].item, operands_[i].block_item});
    return kPanelBytes / widest / loop_.row_length();
  }

  // Whether panels are worth more than their rows: short rows, or several that need no gathering
  // but of a row that they share, or for which copying is less than calls for each.
  bool is_worth_it() const {
    if (loop_.row_length() <= kLongest) return true;
    for (std::size_t i = 0; i <= plan_.input_count; ++i) {
      const Operand& o = operands_[i];
      const std::int64_t step = loop_.row_stride(i);
      const bool is_copied =
          (step == o.item || step == 0) && loop_.row_length() * o.item <= kLongestBytes;
      const bool is_shared = i > 0 && loop_.stride_at(1, i) == 0;
      if (!o.dense && !is_copied && !is_shared) return false;
    }
    return most_rows() >= 2;
  }

  // Computes `rows` rows of the innermost two dimensions; data of the first of them.
  void operator()(const char* const* data, std::int64_t rows, Buffers& buffers) const {
    const std::int64_t count = rows * loop_.row_length();
    const void* in[kMaxInputs] = {};
    for (std::size_t i = 1; i <= plan_.input_count; ++i)
      if (i != single_) in[i - 1] = block(i, panel(i, data[i], rows), buffers);
    alignas(16) char one[16];
    if (single_ != 0) {
      char* pair[2] = {one, const_cast<char*>(data[single_])};
      const std::int64_t steps[2] = {};
      load_single_(pair, steps, 1);
      in[1] = in[2 - single_];
      in[0] = one;
    }
    char* const out = const_cast<char*>(data[0]);
    const Operand& o = operands_[0];
    char* const computed = o.dense && o.convert == nullptr ? out : buffers.blocks[0];
    const BlockFunction function = single_ == 0 ? plan_.function : plan_.single[single_ - 1];
    function(computed, in, count, plan_.numbers);
    if (computed == out) return;
    char* const own = o.dense ? out : o.convert != nullptr ? buffers.own : computed;
    if (o.convert != nullptr) convert(o, own, o.item, computed, o.block_item, count);
    if (!o.dense)
      visit_bytes(static_cast<std::size_t>(o.item), [&](auto item) {
        scatter_panel(reinterpret_cast<const decltype(item)*>(own), panel(0, out, rows));
      });
  }

 private:
  Panel panel(std::size_t i, const char* data, std::int64_t rows) const {
    return {data, loop_.row_stride(i), loop_.stride_at(1, i), loop_.row_length(), rows};
  }

  static void convert(const Operand& o, char* to, std::int64_t to_item, const char* from,
                      std::int64_t from_item, std::int64_t count) {
    char* pair[2] = {to, const_cast<char*>(from)};
    const std::int64_t steps[2] = {to_item, from_item};
    o.convert(pair, steps, count);
  }

  // The panel as a block of the function's dtype: where it is, or in the operand's buffer.
  const char* block(std::size_t i, const Panel& p, Buffers& buffers) const {
    const Operand& o = operands_[i];
    if (o.dense && o.convert == nullptr) return p.data;
    char* const made = buffers.blocks[i];
    Panel& held = buffers.held[i - 1];
    if (p.row_step == 0 && held.data == p.data && held.rows >= p.rows) return made;
    held = p;
    const char* from = p.data;
    if (!o.dense) {
      char* const gathered = o.convert == nullptr ? made : buffers.own;
      gather_panel(gathered, p, o.item);
      from = gathered;
    }
    if (o.convert != nullptr)
      convert(o, made, o.block_item, from, o.item, p.rows * p.length);
    return made;
  }

  const ElementwisePlan& plan_;
  const StridedLoop& loop_;
  std::array<Operand, kMaxInputs + 1> operands_;
  std::size_t single_ = 0;  // the operand that is one element for all rows; 0 where there is none
  tenon::detail::RowFunction load_single_ = nullptr;
};

}  // namespace

bool run_panels(const ElementwisePlan& plan, const StridedLoop& loop, const Tensor& out,
                const Tensor* const* inputs) {
  if (loop.ndim() < 2 || loop.row_length() > kPanelBytes / 2 || loop.size_at(1) < 4) return false;
  const PanelRunner run(plan, loop, out, inputs);
  if (!run.is_worth_it()) return false;
  const std::int64_t most = run.most_rows();
  const std::int64_t panels = (loop.size_at(1) + most - 1) / most;
  const std::int64_t outer = loop.numel() / (loop.row_length() * loop.size_at(1));
  const std::int64_t panel_elements = std::min(most, loop.size_at(1)) * loop.row_length();
  const std::int64_t grain = std::max<std::int64_t>(1, StridedLoop::kGrain / panel_elements);
  parallel_for(0, outer * panels, grain, [&](std::int64_t begin, std::int64_t end) {
    Buffers buffers;
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t first = task % panels * most;
      const char* data[kMaxInputs + 1] = {};
      for (std::size_t i = 0; i <= plan.input_count; ++i) {
        data[i] = loop.data(i) + first * loop.stride_at(1, i);
        std::int64_t rest = task / panels;
        for (std::size_t d = 2; d < loop.ndim(); ++d) {
          data[i] += rest % loop.size_at(d) * loop.stride_at(d, i);
          rest /= loop.size_at(d);
        }
      }
      run(data, std::min(most, loop.size_at(1) - first), buffers);
    }
  });
  return true;
}

}  // namespace tenon::ops
