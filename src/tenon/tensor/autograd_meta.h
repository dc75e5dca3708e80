// What the tensor layer must know of gradients: an interface that the autograd layer fills.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tenon/tensor/int_list.h"

namespace tenon {

class Tensor;
class TensorImpl;

// Which view function made a view, with what it was given: enough to replay it or to derive it.
struct ViewInfo {
  enum class Kind : std::uint8_t {
    kAlias,
    kAsStrided,  // sizes, strides, numbers = {offset}
    kSlice,      // numbers = {dim, start, step, start and end as asked}; the length is the view's
    kSelect,     // {dim, index}
    kPermute,    // sizes = the order of dimensions
    kReshape,    // sizes = the new ones
    kExpand,     // sizes
    kSqueeze,    // sizes = the view's; {dim, 1} where it was one dimension
    kUnsqueeze,  // {dim}
    kDiagonal,   // {offset, dim1, dim2}
    kUnfold,     // {dim, size, step}
  };
  Kind kind = Kind::kAlias;
  IntList sizes = {};
  IntList strides = {};
  std::int64_t numbers[5] = {0, 0, 0, 0, 0};
};

// A tensor's gradient and its place in a graph. Made only when wanted.
class AutogradMetaInterface {
 public:
  virtual ~AutogradMetaInterface() = default;

  // Throws InvalidArgument where a gradient makes no sense (integers).
  virtual void set_requires_grad(bool requires_grad, TensorImpl& self) = 0;
  virtual bool requires_grad() const = 0;
  virtual Tensor& mutable_grad() = 0;
  virtual const Tensor& grad() const = 0;
  // Forward mode: the tangent at a level. Undefined where there is none.
  virtual const Tensor& fw_grad(std::uint64_t level, const Tensor& self) const = 0;
  // False where the thread is at no level, so that there is none.
  virtual bool may_have_tangent() const { return false; }
  virtual void set_fw_grad(const Tensor& tangent, const Tensor& self, std::uint64_t level,
                           bool is_inplace) = 0;

  // --- What the tensor layer does by itself, reported to the metadata of `base`, of `source`, or
  // of `target` if it has some.
  // `view` was just made of `base`. It has no metadata of its own yet.
  virtual void view_created(const Tensor& base, Tensor& view, const ViewInfo& info) = 0;
  // The same for a call that made several views at once, such as split: infos[i] says how views[i]
  // was made.
  virtual void views_created(const Tensor& base, std::span<Tensor> views,
                             std::span<const ViewInfo> infos);
  // `copy` has the values of `source`, possibly in another dtype, order or place.
  virtual void copied(const Tensor& source, Tensor& copy) = 0;
  // Values are about to be written into `target` in place, those of `source` or (undefined)
  // a constant: throws InvalidArgument, while nothing has happened, where that cannot be followed.
  virtual void check_writable(const Tensor& target, const Tensor& source) {
    static_cast<void>(target), static_cast<void>(source);
  }
  // The values of `source`, broadcast and cast, were written into `target`; an undefined source
  // stands for a constant.
  virtual void written(Tensor& target, const Tensor& source) = 0;
  // `result` has the elements of `source` that index tensors chose: indices[d] (int64, broadcast
  // together, in range) for dimension d, or undefined where it was taken whole; the chosen
  // dimensions stand in `result` from `first` on.
  virtual void indexed(const Tensor& source, Tensor& result, std::span<const Tensor> indices,
                       std::int64_t first) = 0;
  // The other way: `values` went to the chosen elements of `target`.
  virtual void index_written(Tensor& target, std::span<const Tensor> indices, const Tensor& values,
                             std::int64_t first, bool accumulate) = 0;
};

// Makes the metadata of a tensor that begins to require a gradient. The autograd layer sets one.
class AutogradMetaFactory {
 public:
  virtual ~AutogradMetaFactory() = default;
  virtual std::unique_ptr<AutogradMetaInterface> make() const = 0;
};

// Not owned; must live as long as the program. Null takes it away. Thread-safe.
void set_autograd_meta_factory(const AutogradMetaFactory* factory);
// Throws InvalidArgument, with the remedy, when there is none.
const AutogradMetaFactory& autograd_meta_factory();

}  // namespace tenon
