#include "tenon/ops/elementwise.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/error.h"
#include "tenon/ops/elementwise_panels.h"
#include "tenon/ops/elementwise_singles.h"
#include "tenon/ops/elementwise_tiles.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"
#include "tenon/tensor/promotion.h"
#include "tenon/tensor/strided_loop.h"
#include "tenon/tensor/strided_rows.h"

namespace tenon::ops {
namespace {

using tenon::detail::RowFunction;

constexpr std::int64_t kBlockBytes = 4096;
constexpr std::int64_t kApart = kBlockBytes + 256;  // addresses a page apart disturb each other

// Walks one row in blocks.
class RowRunner {
 public:
  RowRunner(const ElementwisePlan& plan, const Tensor& out, const Tensor* const* inputs)
      : plan_(plan) {
    out_item_ = static_cast<std::int64_t>(out.item_size());
    store_ = tenon::detail::conversion_row(out.dtype(), plan.result_dtype);
    out_direct_ = out.dtype() == plan.result_dtype;
    for (std::size_t i = 0; i < plan.input_count; ++i) {
      load_[i] = tenon::detail::conversion_row(plan.input_dtypes[i], inputs[i]->dtype());
      item_[i] = static_cast<std::int64_t>(inputs[i]->item_size());
      block_item_[i] = static_cast<std::int64_t>(item_size(plan.input_dtypes[i]));
      direct_[i] = inputs[i]->dtype() == plan.input_dtypes[i];
    }
    for (std::size_t i = 0; i < 2 && plan.single[i] != nullptr; ++i)
      load_single_[i] =
          tenon::detail::conversion_row(compute_dtype(plan.input_dtypes[i]), inputs[i]->dtype());
    result_item_ = static_cast<std::int64_t>(item_size(plan.result_dtype));
    std::int64_t widest = result_item_;
    for (std::size_t i = 0; i < plan.input_count; ++i) widest = std::max(widest, block_item_[i]);
    block_ = kBlockBytes / widest;
  }

  void operator()(char** data, const std::int64_t* strides, std::int64_t length) const {
    alignas(64) char buffers[kMaxInputs + 1][kApart];
    const void* in[kMaxInputs] = {};
    const void* single_first[2] = {};
    const bool out_in_place = out_direct_ && strides[0] == out_item_;
    // Blocks of about one length: no short one is left. Shorter where one element is repeated,
    // since a block of it is written for each row.
    BlockFunction function = plan_.function;
    std::size_t single = kMaxInputs;
    for (std::size_t i = 0; i < 2; ++i)
      if (strides[i + 1] == 0 && plan_.single[i] != nullptr) function = plan_.single[single = i];
    std::int64_t most = block_;
    for (std::size_t i = 0; i < plan_.input_count; ++i)
      if (strides[i + 1] == 0 && i != single) most = direct_[i] ? block_ / 4 : block_;
    const std::int64_t blocks = length <= most ? 1 : (length + most - 1) / most;
    const std::int64_t step =
        blocks == 1 ? length : std::min(most, ((length + blocks - 1) / blocks + 63) / 64 * 64);
    for (std::size_t i = 0; i < plan_.input_count; ++i)
      if (strides[i + 1] == 0) {  // one element for the whole row
        in[i] = buffers[i];
        if (i == single) {
          char* pair[2] = {buffers[i], data[i + 1]};
          load_single_[i](pair, strides, 1);
        } else {
          load(i, buffers[i], data[i + 1], 0, std::min(length, step));
        }
      }
    for (std::int64_t at = 0; at < length; at += step) {
      const std::int64_t count = std::min(step, length - at);
      for (std::size_t i = 0; i < plan_.input_count; ++i) {
        const std::int64_t stride = strides[i + 1];
        if (stride == 0) continue;
        const char* source = data[i + 1] + at * stride;
        if (direct_[i] && stride == item_[i]) {
          in[i] = source;
        } else {
          load(i, buffers[i], source, stride, count);
          in[i] = buffers[i];
        }
      }
      if (single != kMaxInputs) single_first[0] = in[single], single_first[1] = in[1 - single];
      const void* const* const given = single == kMaxInputs ? in : single_first;
      char* out = data[0] + at * strides[0];
      if (out_in_place) {
        function(out, given, count, plan_.numbers);
        continue;
      }
      function(buffers[kMaxInputs], given, count, plan_.numbers);
      char* pair[2] = {out, buffers[kMaxInputs]};
      const std::int64_t steps[2] = {strides[0], result_item_};
      store_(pair, steps, count);
    }
  }

 private:
  void load(std::size_t i, char* block, const char* source, std::int64_t stride,
            std::int64_t count) const {
    char* pair[2] = {block, const_cast<char*>(source)};
    const std::int64_t steps[2] = {block_item_[i], stride};
    if (stride != 0) return load_[i](pair, steps, count);
    if (direct_[i]) return tenon::detail::copy_steps(block, source, item_[i], 0, count);
    load_[i](pair, steps, 1);
    tenon::detail::copy_steps(block, block, block_item_[i], 0, count);
  }

  const ElementwisePlan& plan_;
  RowFunction store_;
  std::array<RowFunction, kMaxInputs> load_;
  std::array<RowFunction, 2> load_single_;
  std::array<std::int64_t, kMaxInputs> item_, block_item_;
  std::array<bool, kMaxInputs> direct_;
  std::int64_t out_item_, result_item_;
  std::int64_t block_;  // elements of a block
  bool out_direct_;
};

// True when writing `out` element by element could change an element of `input` that is still to
// be read: they share a storage and do not walk it in the same way.
bool may_disturb(const Tensor& out, const Tensor& input) {
  if (!input.is_alias_of(out)) return false;
  return !(input.storage_offset() == out.storage_offset() && input.sizes() == out.sizes() &&
           input.strides() == out.strides() && input.dtype() == out.dtype());
}

// All dense, of one shape and of the dtypes wanted: no strides to think of.
bool run_dense(const ElementwisePlan& plan, const Tensor& out, const Tensor* const* inputs) {
  if (out.dtype() != plan.result_dtype || !out.is_contiguous()) return false;
  char* data[kMaxInputs + 1];
  std::size_t items[kMaxInputs + 1];
  for (std::size_t i = 0; i < plan.input_count; ++i) {
    const Tensor& input = *inputs[i];
    if (input.dtype() != plan.input_dtypes[i] || input.numel() != out.numel() ||
        !input.is_contiguous() || !(input.sizes() == out.sizes()) || may_disturb(out, input))
      return false;
    data[i + 1] = static_cast<char*>(const_cast<void*>(input.const_data_ptr()));
    items[i + 1] = input.item_size();
  }
  data[0] = static_cast<char*>(out.data_ptr());
  items[0] = out.item_size();
  const std::int64_t numel = out.numel(), grain = even_grain(numel, StridedLoop::kGrain);
  parallel_for(0, numel, grain, [&](std::int64_t begin, std::int64_t end) {
    const void* in[kMaxInputs] = {};
    for (std::size_t i = 0; i < plan.input_count; ++i)
      in[i] = data[i + 1] + static_cast<std::size_t>(begin) * items[i + 1];
    plan.function(data[0] + static_cast<std::size_t>(begin) * items[0], in, end - begin,
                  plan.numbers);
  });
  return true;
}

}  // namespace

bool run_on_device(const ElementwisePlan& plan, const Tensor& out,
                   std::initializer_list<const Tensor*> inputs) {
  if (!vulkan::holds(out)) return false;
  for (const Tensor* input : inputs)
    if (may_disturb(out, *input)) return false;
  return vulkan::elements(plan.on_device, plan.input_dtypes[plan.input_count - 1], plan.numbers,
                          out, {inputs.begin(), inputs.size()});
}

void run_elementwise(const ElementwisePlan& plan, const Tensor& out,
                     std::initializer_list<const Tensor*> inputs) {
  if (out.is_meta() || out.numel() == 0) return;
  HostTurn host;
  if (out.device().type != DeviceType::kCpu) {
    if (run_on_device(plan, out, inputs)) return;
    host.take(plan.name, out.device());
  }
  // The output is asked for its memory first: shared bytes become its own, and an input that is the
  // same tensor is then read from there.
  static_cast<void>(out.data_ptr());
  if (run_dense(plan, out, inputs.begin())) return;
  std::array<Tensor, kMaxInputs> copies;
  std::array<const Tensor*, kMaxInputs> ready{};
  std::array<StridedLoop::Operand, kMaxInputs + 1> operands;
  operands[0] = {out.data_ptr(), out.sizes(), out.strides(),
                 static_cast<std::int64_t>(out.item_size())};
  for (std::size_t i = 0; i < plan.input_count; ++i) {
    ready[i] = inputs.begin()[i];
    if (may_disturb(out, *ready[i])) {
      copies[i] = clone(ready[i]->detach());
      ready[i] = &copies[i];
    }
    operands[i + 1] = {const_cast<void*>(ready[i]->const_data_ptr()), ready[i]->sizes(),
                       ready[i]->strides(), static_cast<std::int64_t>(ready[i]->item_size())};
  }
  const StridedLoop loop(out.sizes(), operands.data(), plan.input_count + 1);
  if (run_tiles(plan, loop, out, ready.data())) return;
  if (run_singles(plan, loop, out, ready.data())) return;
  if (run_panels(plan, loop, out, ready.data())) return;
  loop.run_parallel(RowRunner(plan, out, ready.data()));
}

Tensor elementwise_result(IntList sizes, DType dtype, Device device,
                          std::initializer_list<const Tensor*> inputs) {
  const Tensor& first = **inputs.begin();
  if (first.is_contiguous() && first.sizes() == sizes) return empty(sizes, dtype, device);
  const Tensor* whole = nullptr;
  bool all_alike = true;
  for (const Tensor* input : inputs) {
    if (!(input->sizes() == sizes)) continue;  // broadcast
    if (whole == nullptr) whole = input;
    all_alike = all_alike && input->strides() == whole->strides();
  }
  if (whole != nullptr && all_alike && !whole->is_contiguous() &&
      whole->is_non_overlapping_and_dense())
    return empty_strided(sizes, whole->strides(), dtype, device);
  return empty(sizes, dtype, device);
}

void check_floating(const char* what, const Tensor& a) {
  if (!is_floating(a.dtype()))
    throw InvalidArgument(
        fmt::format("{}: of {}; convert it to floating point first", what, dtype_name(a.dtype())));
}

void check_out(const char* what, const Tensor& out, IntList sizes, DType result, Device device) {
  if (!(out.sizes() == sizes))
    throw InvalidArgument(fmt::format("{}: the result has shape {}, the output {}", what,
                                      to_string(sizes), to_string(out.sizes())));
  if (!can_cast(result, out.dtype()))
    throw InvalidArgument(fmt::format("{}: a result of {} cannot go into {}", what,
                                      dtype_name(result), dtype_name(out.dtype())));
  if (out.device() != device && !(device == Device{} && out.is_meta()))
    throw InvalidArgument(fmt::format("{}: the inputs are on {}, the output on {}", what,
                                      to_string(device), to_string(out.device())));
  if (out.numel() > 1 && !is_surely_non_overlapping(out.sizes(), out.strides()))
    throw InvalidArgument(
        fmt::format("{}: the output of shape {} and strides {} has elements that share memory",
                    what, to_string(out.sizes()), to_string(out.strides())));
}

}  // namespace tenon::ops
