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
class TakeNode final : public NodeOf<1> {
 public:
  explicit TakeNode(const ViewRecord& record) : record_(record) {}
  const char* name() const override { return "as_strided"; }
  void backward(const BackwardCall& call) override { call.out[0] = record_.undo(call.grad()); }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return record_.apply(tangents[0]);
  }

 private:
  const ViewRecord record_;
};

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
  geometry_ = std::make_shared<const Geometry>(
      Geometry{base.sizes().to_vector(), base.strides().to_vector(), view.sizes().to_vector(),
               view.strides().to_vector(), view.storage_offset() - base.storage_offset(),
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
  return recorded<TakeNode>(*this, t, [this](const Tensor& x) { return strided(x); });
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
  if (!formulas_recorded()) {
    const Tensor rest = clone(t);
    zero_(apply(rest));
    return rest;
  }
  const Tensor mask = ones(base_sizes_, dtype_, t.device());
  {
    const ops::KeyGuard below(DispatchKey::kAutograd);
    zero_(apply(mask));
  }
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
  // Both geometries over one stretch of memory.
  const std::int64_t base_at = std::max<std::int64_t>(0, -g.shift);
  const std::int64_t view_at = base_at + g.shift;
  const std::int64_t reach = std::max(storage_elements(g.base_sizes, g.base_strides, base_at),
                                      storage_elements(g.sizes, g.strides, view_at));
  const Tensor buffer =
      zeros({std::max<std::int64_t>(reach, 1)}, gradient.dtype(), gradient.device());
  const Tensor places = buffer.as_strided(g.sizes, g.strides, view_at);
  if (!g.overlaps)
    copy_(places, gradient);
  else
    add_overlapping(places, gradient);
  return buffer.as_strided(g.base_sizes, g.base_strides, base_at);
}

Tensor ViewRecord::strided(const Tensor& t) const {
  const Geometry& g = *geometry_;
  Tensor laid = t;
  if (!(t.strides() == IntList(g.base_strides)) || g.shift < 0) {
    const std::int64_t base_at = std::max<std::int64_t>(0, -g.shift);
    const std::int64_t reach = std::max(storage_elements(g.base_sizes, g.base_strides, base_at),
                                        storage_elements(g.sizes, g.strides, base_at + g.shift));
    const Tensor buffer = zeros({std::max<std::int64_t>(reach, 1)}, t.dtype(), t.device());
    laid = buffer.as_strided(g.base_sizes, g.base_strides, base_at);
    copy_(laid, t);
  }
  return laid.as_strided(g.sizes, g.strides, laid.storage_offset() + g.shift);
}

}  // namespace tenon::autograd
