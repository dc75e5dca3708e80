#include "tenon/autograd/view_record.h"

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/record.h"
#include "tenon/ops/binary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/strided_loop.h"

namespace tenon::autograd {
namespace {

using Kind = ViewInfo::Kind;

// What undoing a view does, seen from its own gradient: the view again.
class UndoViewNode final : public NodeOf<1> {
 public:
  explicit UndoViewNode(const ViewRecord& record) : record_(record) {}
  const char* name() const override { return "view_backward"; }
  void backward(const BackwardCall& call) override { call.out[0] = record_.apply(call.grad()); }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return record_.undo(tangents[0]);
  }

 private:
  const ViewRecord record_;
};

// Looking at strided places of a tensor, without a view that others could write through.
class TakeViewNode final : public NodeOf<1> {
 public:
  explicit TakeViewNode(const ViewRecord& record) : record_(record) {}
  const char* name() const override { return "as_strided"; }
  void backward(const BackwardCall& call) override { call.out[0] = record_.undo(call.grad()); }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return record_.apply(tangents[0]);
  }

 private:
  const ViewRecord record_;
};

void put(const Tensor& places, const Tensor& values, bool overlap) {
  if (overlap)
    add_overlapping(places, values);
  else
    copy_(places, values);
}

// compute(t), recorded as a node of that kind.
template <typename NodeT, typename Compute>
Tensor recorded(const ViewRecord& record, const Tensor& t, Compute&& compute) {
  const Needs needs = detail::needs_of(t);
  if (needs.all() == 0 || recording_suspended()) {
    const ops::KeyGuard below(DispatchKey::kAutograd);
    return compute(t);
  }
  auto node = make_intrusive<NodeT>(record);
  detail::connect(*node, needs.grads, t);
  Tensor result = [&] {
    const ops::KeyGuard below(DispatchKey::kAutograd);
    return compute(t);
  }();
  finish_call(node, needs, result, t);
  return result;
}

}  // namespace

ViewRecord::ViewRecord(const Tensor& base, const Tensor& view, const ViewInfo& info)
    : kind_(info.kind), dtype_(base.dtype()), base_sizes_(base.sizes().to_vector()) {
  std::copy_n(info.numbers, 3, numbers_.begin());
  switch (kind_) {
    case Kind::kPermute:
    case Kind::kReshape:
    case Kind::kExpand:
    case Kind::kSqueeze:
      order_ = info.sizes.to_vector();
      break;
    case Kind::kSlice: {  // the end
      const std::int64_t length = view.size(numbers_[0]);
      order_ = {length == 0 ? numbers_[1] : numbers_[1] + (length - 1) * numbers_[2] + 1};
      break;
    }
    case Kind::kAsStrided:
      set_geometry(base, view);
      break;
    default:
      break;
  }
}

ViewRecord::ViewRecord(const Tensor& base, const Tensor& view)
    : kind_(Kind::kAsStrided), dtype_(base.dtype()), base_sizes_(base.sizes().to_vector()) {
  set_geometry(base, view);
}

void ViewRecord::set_geometry(const Tensor& base, const Tensor& view) {
  const std::int64_t shift = view.storage_offset() - base.storage_offset();
  const std::int64_t base_at = std::max<std::int64_t>(0, -shift);
  const std::int64_t reach =
      std::max({storage_elements(base.sizes(), base.strides(), base_at),
                storage_elements(view.sizes(), view.strides(), base_at + shift), std::int64_t{1}});
  geometry_ = std::make_shared<const Geometry>(
      Geometry{base.sizes().to_vector(), base.strides().to_vector(), view.sizes().to_vector(),
               view.strides().to_vector(), shift, base_at, reach,
               !is_surely_non_overlapping(base.sizes(), base.strides()),
               !is_surely_non_overlapping(view.sizes(), view.strides())});
}

const char* ViewRecord::name() const {
  constexpr const char* kNames[] = {"alias",     "as_strided", "slice",  "select",
                                    "permute",   "reshape",    "expand", "squeeze",
                                    "unsqueeze", "diagonal",   "unfold"};
  return kNames[static_cast<std::size_t>(kind_)];
}

Tensor ViewRecord::apply(const Tensor& t) const {
  const auto& [a, b, c] = numbers_;
  switch (kind_) {
    case Kind::kAlias:
      return t.alias();
    case Kind::kSlice:
      return t.slice(a, b, order_[0], c);
    case Kind::kSelect:
      return t.select(a, b);
    case Kind::kPermute:
      return t.permute(order_);
    case Kind::kReshape:
    case Kind::kSqueeze:
      return t.reshape(order_);
    case Kind::kExpand:
      return t.expand(order_);
    case Kind::kUnsqueeze:
      return t.unsqueeze(a);
    case Kind::kDiagonal:
      return t.diagonal(a, b, c);
    case Kind::kUnfold:
      return t.unfold(a, b, c);
    case Kind::kAsStrided:
      break;
  }
  return recorded<TakeViewNode>(*this, t, [this](const Tensor& x) {
    const bool fits = x.strides() == IntList(geometry_->base_strides) && geometry_->shift >= 0;
    return strided(fits ? x : laid(x));
  });
}

Tensor ViewRecord::undo(const Tensor& gradient) const {
  switch (kind_) {
    case Kind::kAlias:
      return gradient;
    case Kind::kPermute: {
      DimVector inverse(order_.size());
      for (std::size_t d = 0; d < order_.size(); ++d)
        inverse[static_cast<std::size_t>(order_[d])] = static_cast<std::int64_t>(d);
      return gradient.permute(inverse);
    }
    case Kind::kReshape:
    case Kind::kSqueeze:
    case Kind::kUnsqueeze:
      return gradient.reshape(base_sizes_);
    case Kind::kExpand:
      return sum_to(gradient, base_sizes_);
    default:
      return recorded<UndoViewNode>(*this, gradient,
                                    [this](const Tensor& g) { return scatter(g); });
  }
}

Tensor ViewRecord::without(const Tensor& t) const {
  const auto cleared = [this](const Tensor& values) {
    const Tensor copy = laid(values);
    zero_(strided(copy));
    return copy;
  };
  if (!formulas_recorded()) return cleared(t);
  const Tensor mask = [&] {
    const ops::KeyGuard below(DispatchKey::kAutograd);
    return cleared(ones(base_sizes_, dtype_, t.device()));
  }();
  return ops::mul(t, mask);
}

Tensor ViewRecord::scatter(const Tensor& gradient) const {
  if (kind_ == Kind::kAsStrided) return scatter_strided(gradient);
  Tensor out = zeros(base_sizes_, gradient.dtype(), gradient.device());
  if (kind_ == Kind::kUnfold) {
    const auto& [dim, size, step] = numbers_;
    const std::int64_t windows = gradient.size(dim);
    for (std::int64_t i = 0; i < size; ++i)
      ops::add_(out.slice(dim, i, i + (windows - 1) * step + 1, step), gradient.select(-1, i));
    return out;
  }
  copy_(apply(out), gradient);
  return out;
}

Tensor ViewRecord::scatter_strided(const Tensor& gradient) const {
  const Geometry& g = *geometry_;
  const Tensor memory = zeros({g.reach}, gradient.dtype(), gradient.device());
  put(memory.as_strided(g.sizes, g.strides, g.base_at + g.shift), gradient, g.overlaps);
  if (g.base_overlaps) share_out(memory);
  return memory.as_strided(g.base_sizes, g.base_strides, g.base_at);
}

Tensor ViewRecord::laid(const Tensor& t) const {
  const Geometry& g = *geometry_;
  const bool has_gaps = g.base_overlaps || g.reach > t.numel();
  const Tensor memory = has_gaps ? zeros({g.reach}, t.dtype(), t.device())
                                 : empty({g.reach}, t.dtype(), t.device());
  const Tensor base = memory.as_strided(g.base_sizes, g.base_strides, g.base_at);
  put(base, t, g.base_overlaps);
  if (g.base_overlaps) share_out(memory);
  return base;
}

Tensor ViewRecord::strided(const Tensor& t) const {
  const Geometry& g = *geometry_;
  return t.as_strided(g.sizes, g.strides, t.storage_offset() + g.shift);
}

void ViewRecord::share_out(const Tensor& memory) const {
  const Geometry& g = *geometry_;
  const Tensor uses = zeros_like(memory);
  put(uses.as_strided(g.base_sizes, g.base_strides, g.base_at),
      ones(g.base_sizes, memory.dtype(), memory.device()), true);
  ops::div_(memory, ops::maximum(uses, ones_like(uses)));
}

}  // namespace tenon::autograd
