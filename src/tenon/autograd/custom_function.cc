#include "tenon/autograd/custom_function.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/record.h"
#include "tenon/base/error.h"
#include "tenon/tensor/factories.h"

namespace tenon::autograd {
namespace {

// Whether `sizes` broadcast to `wider`, so that a gradient of these sizes can be summed to them.
bool broadcasts_to(IntList sizes, IntList wider) {
  if (sizes.size() > wider.size()) return false;
  const std::size_t added = wider.size() - sizes.size();
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1 && sizes[d] != wider[added + d]) return false;
  return true;
}

bool is_among(const Tensor& t, std::span<const Tensor> tensors) {
  return std::ranges::any_of(tensors, [&](const Tensor& one) { return one.is_same(t); });
}

// A tensor with a history, or that comes back twice, comes back as an alias: each result gets a
// history of its own.
void take_aliases(const CustomFunction& function, std::span<Tensor> results,
                  std::span<const Tensor> inputs) {
  const NoGradGuard unrecorded;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined())
      throw InvalidArgument(
          fmt::format("{}: forward returned an undefined tensor as result {}", function.name(), i));
    if (is_among(results[i], inputs) || is_among(results[i], results.first(i)) ||
        needs_grad(results[i]))
      results[i] = results[i].alias();
  }
}

// A change of one in place would reach tensors whose history knows nothing of it: check_in_place
// refuses it by this mark.
void refuse_changes_of_shared(std::span<const Tensor> results, std::span<const Tensor> inputs) {
  for (const Tensor& result : results) {
    const auto shares = [&](const Tensor& t) {
      return !t.is_same(result) && t.storage().is_alias_of(result.storage());
    };
    if (needs_grad(result) &&
        (std::ranges::any_of(inputs, shares) || std::ranges::any_of(results, shares)))
      meta_of(result)->made_without_grad_ = true;
  }
}

}  // namespace

class CustomNode final : public VariadicNode {
 public:
  CustomNode(std::shared_ptr<CustomFunction> function, std::span<const Tensor> inputs)
      : function_(std::move(function)) {
    make_edges(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs_.push_back(Kind::of(inputs[i]));
      if (needs_grad(inputs[i])) edges()[i] = gradient_edge(inputs[i]);
    }
  }
  const char* name() const override { return function_->name(); }

  // Results whose history this node becomes are saved without it, or the node would hold itself.
  void keep(FunctionContext context, const std::vector<Tensor>& results) {
    set_output_count(results.size());
    for (const Tensor& result : results) results_.push_back(Kind::of(result));
    context_ = std::move(context);
    const std::vector<Tensor> tensors = std::exchange(context_.to_save_, {});
    saved_ = std::vector<SavedTensor>(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto same = [&](const Tensor& result) { return result.is_same(tensors[i]); };
      const auto found = std::find_if(results.begin(), results.end(), same);
      output_of_.push_back(found == results.end() ? kNone : found - results.begin());
      saved_[i].save(found == results.end() ? tensors[i] : tensors[i].detach());
    }
  }
  void release_saved() override {
    for (SavedTensor& saved : saved_) saved.release();
  }

  void backward(const BackwardCall& call) override {
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < results_.size(); ++i)
      gradients.push_back(call.grads[i].defined()
                              ? call.grads[i]
                              : zeros(results_[i].sizes, results_[i].dtype, results_[i].device));
    FunctionContext context = context_;
    for (std::size_t i = 0; i < saved_.size(); ++i) {
      Tensor saved = saved_[i].get(*this);
      if (output_of_[i] != kNone && grad_enabled())
        attach_history(saved, self(), static_cast<std::uint32_t>(output_of_[i]));
      context.saved_.push_back(std::move(saved));
    }
    for (std::size_t i = 0; i < edges().size(); ++i)
      context.wanted_.push_back(edges()[i].node && call.wants(i));
    const std::vector<Tensor> found = function_->backward(context, gradients);
    if (found.size() != edges().size())
      throw InvalidArgument(fmt::format("{}: backward gave {} gradients for {} inputs", name(),
                                        found.size(), edges().size()));
    for (std::size_t i = 0; i < found.size(); ++i)
      if (context.wanted_[i] && found[i].defined()) call.out[i] = as_input(i, found[i]);
  }

 private:
  static constexpr std::ptrdiff_t kNone = -1;
  // What a gradient has in common with its tensor.
  struct Kind {
    static Kind of(const Tensor& t) { return {t.sizes().to_vector(), t.dtype(), t.device()}; }

    DimVector sizes;
    DType dtype;
    Device device;
  };

  Tensor as_input(std::size_t i, const Tensor& gradient) const {
    const auto& [sizes, dtype, device] = inputs_[i];
    if (gradient.device() != device)
      throw InvalidArgument(fmt::format(
          "{}: backward gave a gradient on {} for input {}, which is on {}; move it with to()",
          name(), to_string(gradient.device()), i, to_string(device)));
    if (!broadcasts_to(sizes, gradient.sizes()))
      throw InvalidArgument(fmt::format(
          "{}: backward gave a gradient of shape {} for input {} of shape {}; it must have the "
          "input's shape, or one that the input broadcasts to",
          name(), to_string(gradient.sizes()), i, to_string(IntList(sizes))));
    return match(gradient, sizes, dtype);
  }

  const std::shared_ptr<CustomFunction> function_;
  FunctionContext context_;
  std::vector<SavedTensor> saved_;
  std::vector<std::ptrdiff_t> output_of_;  // of the saved ones that are results
  std::vector<Kind> inputs_;
  std::vector<Kind> results_;
};

std::vector<Tensor> apply_function(std::shared_ptr<CustomFunction> function,
                                   std::span<const Tensor> inputs) {
  bool needed = false;
  for (const Tensor& input : inputs) {
    if (!input.defined())
      throw InvalidArgument(fmt::format("{}: an input is undefined", function->name()));
    needed |= grad_enabled() && needs_grad(input);
  }
  FunctionContext context;
  std::vector<Tensor> results;
  {
    const NoGradGuard unrecorded;
    results = function->forward(context, inputs);
  }
  take_aliases(*function, results, inputs);
  if (!needed || results.empty()) return results;
  auto node = make_intrusive<CustomNode>(std::move(function), inputs);
  const std::vector<std::size_t> without = context.without_gradient_;
  node->keep(std::move(context), results);
  for (std::size_t i = 0; i < results.size(); ++i)
    if (std::find(without.begin(), without.end(), i) == without.end())
      attach_history(results[i], node, static_cast<std::uint32_t>(i));
  refuse_changes_of_shared(results, inputs);
  return results;
}

}  // namespace tenon::autograd
