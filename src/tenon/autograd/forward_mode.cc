#include "tenon/autograd/forward_mode.h"

#include <fmt/format.h>

#include <atomic>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/view_record.h"
#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/geometry.h"

namespace tenon::autograd {
namespace {

using detail::forward_levels;

std::atomic<std::uint64_t> next_level{1};

// Only the `depth` outermost levels are followed until the guard ends.
class DepthGuard {
 public:
  explicit DepthGuard(std::size_t depth) : previous_(forward_levels.depth) {
    forward_levels.depth = depth;
  }
  ~DepthGuard() { forward_levels.depth = previous_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  const std::size_t previous_;
};

// The tensors that got a tangent at each level of this thread. A tangent's graph may have saved the
// tensor that holds it, which would keep both for ever: so tangents go when their level ends.
thread_local std::array<std::vector<WeakIntrusivePtr<TensorImpl>>, detail::kMaxForwardLevels>
    tensors_with_tangents;

void note_tangent(const Tensor& t, std::uint64_t level) {
  for (std::size_t i = 0; i < detail::kMaxForwardLevels; ++i)
    if (forward_levels.ids[i] == level)
      tensors_with_tangents[i].push_back(WeakIntrusivePtr<TensorImpl>(t.impl_ptr()));
}

// Also tangents of levels that ended on another thread.
void set_tangent(const Tensor& t, std::uint64_t level, const Tensor& value) {
  // It may be written through views of its own later.
  if (grad_enabled()) ensure_meta(value);
  AutogradMeta& meta = ensure_meta(t);
  if (meta.extra_ == nullptr) meta.extra_ = std::make_unique<AutogradMeta::Extra>();
  std::erase_if(meta.extra_->tangents, [&](const AutogradMeta::Tangent& tangent) {
    for (const std::uint64_t id : forward_levels.ids)
      if (id == tangent.level && id != level) return false;
    return true;
  });
  meta.extra_->tangents.push_back({level, value});
  note_tangent(t, level);
}

// Takes the level's tangents from their tensors; they go when nothing holds them any more.
void drop_tangents(std::uint64_t level, std::span<const WeakIntrusivePtr<TensorImpl>> tensors) {
  std::vector<Tensor> dropped;
  for (const WeakIntrusivePtr<TensorImpl>& weak : tensors) {
    const IntrusivePtr<TensorImpl> impl = weak.lock();
    if (!impl) continue;
    AutogradMeta* meta = meta_of(Tensor(impl));
    if (meta == nullptr || meta->extra_ == nullptr) continue;
    std::erase_if(meta->extra_->tangents, [&](AutogradMeta::Tangent& tangent) {
      if (tangent.level != level) return false;
      dropped.push_back(std::move(tangent.value));
      return true;
    });
  }
}

// A base's tangent, in memory that is laid as the base's: views of both look at the same places.
Tensor laid_as_base(const Tensor& tangent, const Tensor& base) {
  if (tangent.strides() == base.strides()) return tangent;
  const Tensor laid =
      empty_strided(base.sizes(), base.strides(), tangent.dtype(), tangent.device());
  ensure_meta(laid);  // its views are followed
  copy_(laid, tangent);
  return laid;
}

Tensor tangent_at(const Tensor& t, std::uint64_t level) {
  if (!t.defined()) return {};
  const AutogradMeta* meta = meta_of(t);
  if (meta == nullptr) return {};
  if (meta->extra_ != nullptr)
    for (const AutogradMeta::Tangent& tangent : meta->extra_->tangents)
      if (tangent.level == level) return tangent.value;
  // The base may have got one since the view was made.
  if (!meta->base_.defined()) return {};
  const Tensor& base = meta->base_;
  const Tensor of_base = tangent_at(base, level);
  if (!of_base.defined()) return {};
  const RecordAgain record(grad_enabled());
  if (!is_surely_non_overlapping(base.sizes(), base.strides())) {
    const Tensor part = ViewRecord(base, t).apply(of_base);
    set_tangent(t, level, part);
    return part;
  }
  // One memory for both, so that writes are seen by both.
  const Tensor laid = laid_as_base(of_base, base);
  if (!laid.is_same(of_base)) set_tangent(base, level, laid);
  const Tensor part =
      laid.as_strided(t.sizes(), t.strides(),
                      laid.storage_offset() + t.storage_offset() - base.storage_offset());
  set_tangent(t, level, part);
  return part;
}

}  // namespace

ForwardLevel::ForwardLevel() : id_(next_level.fetch_add(1)) {
  if (forward_levels.depth == detail::kMaxForwardLevels)
    throw InvalidArgument(fmt::format("forward mode: at most {} levels at once on a thread",
                                      detail::kMaxForwardLevels));
  forward_levels.ids[forward_levels.depth++] = id_;
}

ForwardLevel::~ForwardLevel() {
  const std::size_t own = --forward_levels.depth;
  forward_levels.ids[own] = 0;
  drop_tangents(id_, std::exchange(tensors_with_tangents[own], {}));
}

const Tensor& AutogradMeta::fw_grad(std::uint64_t level, const Tensor& self) const {
  static const Tensor none;
  if (!tangent_at(self, level).defined()) return none;
  for (const Tangent& tangent : extra_->tangents)  // it is kept there, if it was not before
    if (tangent.level == level) return tangent.value;
  return none;
}

bool AutogradMeta::may_have_tangent() const { return forward_depth() != 0; }

void AutogradMeta::set_fw_grad(const Tensor& tangent, const Tensor& self, std::uint64_t level,
                               bool is_inplace) {
  if (!(tangent.sizes() == self.sizes()) || tangent.dtype() != self.dtype())
    throw InvalidArgument(fmt::format("set_fw_grad: a tangent of {} {} for a tensor of {} {}",
                                      dtype_name(tangent.dtype()), to_string(tangent.sizes()),
                                      dtype_name(self.dtype()), to_string(self.sizes())));
  const Tensor now = tangent_at(self, level);
  if (is_inplace && now.defined())
    copy_(now, tangent);
  else
    set_tangent(self, level, tangent);
}

Tensor make_dual(const Tensor& primal, const Tensor& tangent, const ForwardLevel& level) {
  tenon::detail::check_defined("make_dual", primal, tangent);
  if (!is_floating(primal.dtype()) && !is_complex(primal.dtype()))
    throw InvalidArgument(
        fmt::format("make_dual: a tensor of {} has no tangent", dtype_name(primal.dtype())));
  Tensor dual = primal.requires_grad() || has_tangent(primal)
                    ? primal.alias()
                    : Tensor(primal.impl()->shallow_copy(true, true));
  ensure_meta(dual).set_fw_grad(tangent, dual, level.id(), false);
  return dual;
}

Tensor fw_grad(const Tensor& tensor, const ForwardLevel& level) {
  return tangent_at(tensor, level.id());
}

bool has_tangent(const Tensor& t) {
  for (std::size_t i = 0; i < forward_levels.depth; ++i)
    if (tangent_at(t, forward_levels.ids[i]).defined()) return true;
  return false;
}

void copy_tangents(const Tensor& from, const Tensor& to) {
  for (std::size_t i = 0; i < forward_levels.depth; ++i)
    if (const Tensor tangent = tangent_at(from, forward_levels.ids[i]); tangent.defined())
      set_tangent(to, forward_levels.ids[i], tangent);
}

void propagate_tangents(Node& node, std::span<const Tensor* const> inputs, Tensor& result) {
  if (!is_floating(result.dtype()) && !is_complex(result.dtype())) return;
  if (result.impl()->autograd_meta() == nullptr && result.use_count() != 1)
    result = Tensor(result.impl()->shallow_copy(true, true));
  std::vector<Tensor> tangents(node.edges().size());
  for (std::size_t i = forward_levels.depth; i-- > 0;) {
    bool any = false;
    for (std::size_t k = 0; k < tangents.size() && k < inputs.size(); ++k) {
      tangents[k] = tangent_at(*inputs[k], forward_levels.ids[i]);
      any |= tangents[k].defined();
    }
    if (!any) continue;
    Tensor tangent;
    {
      const DepthGuard outer(i);
      const RecordAgain record(grad_enabled());
      tangent = node.tangent(tangents, result);
    }
    if (tangent.defined()) set_tangent(result, forward_levels.ids[i], tangent);
  }
}

void TangentInputs::take(const Tensor& t) {
  for (std::size_t i = 0; i < tangents_.size(); ++i)
    tangents_[i].push_back(tangent_at(t, forward_levels.ids[i]));
}

void TangentInputs::propagate_in_place(Node& node, const Tensor& out) const {
  for (std::size_t i = tangents_.size(); i-- > 0;) {
    bool any = false;
    for (const Tensor& t : tangents_[i]) any |= t.defined();
    const Tensor now = tangent_at(out, forward_levels.ids[i]);
    if (!any && !now.defined()) continue;
    const DepthGuard outer(i);
    const RecordAgain record(grad_enabled());
    Tensor tangent;
    if (any) {
      std::vector<Tensor> inputs = tangents_[i];
      inputs.resize(node.edges().size());
      // What is overwritten below must not be what the tangent's own graph saves: it would be found
      // changed, and hold itself. The copies have the history that it has so far.
      if (grad_enabled() && now.defined())
        for (Tensor& input : inputs)
          if (input.defined() && input.is_alias_of(now)) input = clone(input);
      tangent = node.tangent(inputs, out);
    }
    if (now.defined()) {
      tangent.defined() ? copy_(now, tangent) : zero_(now);
    } else if (tangent.defined()) {
      const AutogradMeta* meta = meta_of(out);
      if (meta != nullptr && meta->base_.defined()) {
        set_tangent(meta->base_, forward_levels.ids[i], zeros_like(meta->base_.detach()));
        copy_(tangent_at(out, forward_levels.ids[i]), tangent);
      } else {
        set_tangent(out, forward_levels.ids[i], tangent);
      }
    }
  }
}

std::pair<std::vector<Tensor>, std::vector<Tensor>> jvp(const VectorFunction& f,
                                                        std::span<const Tensor> inputs,
                                                        std::span<const Tensor> tangents) {
  if (inputs.size() != tangents.size())
    throw InvalidArgument(
        fmt::format("jvp: {} tangents for {} inputs", tangents.size(), inputs.size()));
  const ForwardLevel level;
  std::vector<Tensor> duals;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (tangents[i].defined()) tenon::detail::check_defined("jvp", inputs[i]);
    duals.push_back(tangents[i].defined() ? make_dual(inputs[i], tangents[i], level) : inputs[i]);
  }
  std::pair<std::vector<Tensor>, std::vector<Tensor>> results;
  results.first = f(duals);
  for (const Tensor& result : results.first) results.second.push_back(fw_grad(result, level));
  return results;
}

}  // namespace tenon::autograd
