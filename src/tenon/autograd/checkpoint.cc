// Memory for time: what nodes save is computed again, or kept elsewhere.
#include <mutex>

#include "tenon/autograd/meta.h"
#include "tenon/autograd/saved_tensor.h"
#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::autograd {
namespace {

using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

// Note [Checkpoints]
//
// The first run records its graph as always, but the tensors that nodes save are thrown away: each
// leaves its number in order. When backward asks for one, the function runs again, and what its
// nodes save is kept under the same numbers until backward has taken it. So gradients flow through
// the first run's graph, to whatever the function captured, and nothing is special about a node in
// a checkpoint.
class Frame {
 public:
  Frame(Function f, std::span<const Tensor> inputs)
      : f_(std::move(f)),
        inputs_(inputs.begin(), inputs.end()),
        generator_offset_(default_generator().offset()) {}

  std::size_t take_number() { return count_++; }

  Tensor take(std::size_t number) {
    const std::lock_guard lock(mutex_);
    if (number >= again_.size() || !again_[number].defined()) run_again();
    if (number >= again_.size() || !again_[number].defined())
      throw InvalidArgument(
          "checkpoint: run again, the function saved other tensors than the first time; it must do "
          "the same whenever it runs");
    return std::exchange(again_[number], Tensor());
  }

 private:
  void run_again() {
    again_.clear();
    Generator& generator = default_generator();
    const std::uint64_t now = generator.offset();
    generator.set_offset(generator_offset_);
    const RecordAgain record;
    const SavedTensorHooks keep(
        [this](const Tensor& t) {
          again_.push_back(t);
          return std::make_shared<int>(0);
        },
        [](const SavedTensorHooks::Packed&) { return Tensor(); });
    f_(own_inputs());
    generator.set_offset(now);
  }

  // Apart from the first run's graph; leaves stay leaves, so that the same tensors are saved.
  std::vector<Tensor> own_inputs() const {
    std::vector<Tensor> own;
    for (const Tensor& input : inputs_) {
      if (!input.defined() || !needs_grad(input)) {
        own.push_back(input);
        continue;
      }
      const Tensor leaf(input.impl()->shallow_copy(true, true));
      leaf.set_requires_grad(true);
      own.push_back(is_leaf(input) ? leaf : leaf.alias());
    }
    return own;
  }

  const Function f_;
  const std::vector<Tensor> inputs_;
  const std::uint64_t generator_offset_;
  std::size_t count_ = 0;
  std::recursive_mutex mutex_;
  std::vector<Tensor> again_;  // by number
};

struct Place {
  std::shared_ptr<Frame> frame;
  std::size_t number;
};

// A tensor's bytes in another allocator's memory; or the tensor, where it is too small to move.
struct Elsewhere {
  Tensor kept;
  DataPtr bytes;
  Allocator* allocator = nullptr;
  DimVector sizes, strides;
  DType dtype = DType::kF32;
  Device device;
};

SavedTensorHooks::Packed move_away(const Tensor& t, Allocator& target, std::size_t min_bytes) {
  auto moved = std::make_shared<Elsewhere>();
  if (t.nbytes() < min_bytes || t.numel() == 0 || t.is_meta()) {
    moved->kept = t;
    return moved;
  }
  const Tensor dense = t.is_non_overlapping_and_dense() ? t : contiguous(t);
  moved->bytes = target.allocate(dense.nbytes());
  target.copy_data(moved->bytes.get(), dense.const_data_ptr(), dense.nbytes());
  moved->allocator = &target;
  moved->sizes = dense.sizes().to_vector();
  moved->strides = dense.strides().to_vector();
  moved->dtype = t.dtype();
  moved->device = t.device();
  return moved;
}

Tensor bring_back(const SavedTensorHooks::Packed& packed) {
  const Elsewhere& moved = *std::static_pointer_cast<Elsewhere>(packed);
  if (moved.kept.defined()) return moved.kept;
  const Tensor t = empty_strided(moved.sizes, moved.strides, moved.dtype, moved.device);
  moved.allocator->copy_data(t.data_ptr(), moved.bytes.get(), t.nbytes());
  return t;
}

}  // namespace

std::vector<Tensor> checkpoint(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f,
                               std::span<const Tensor> inputs) {
  if (!recording()) return f(inputs);
  const auto frame = std::make_shared<Frame>(f, inputs);
  const SavedTensorHooks forget(
      [frame](const Tensor&) {
        return std::make_shared<Place>(Place{frame, frame->take_number()});
      },
      [](const SavedTensorHooks::Packed& packed) {
        const Place& place = *std::static_pointer_cast<Place>(packed);
        return place.frame->take(place.number);
      });
  return f(inputs);
}

Tensor checkpoint(const std::function<Tensor(std::span<const Tensor>)>& f,
                  std::span<const Tensor> inputs) {
  const Function several = [f](std::span<const Tensor> in) { return std::vector<Tensor>{f(in)}; };
  return checkpoint(several, inputs)[0];
}

OffloadSaved::OffloadSaved(Allocator& target, std::size_t min_bytes)
    : hooks_([&target, min_bytes](const Tensor& t) { return move_away(t, target, min_bytes); },
             [](const SavedTensorHooks::Packed& packed) { return bring_back(packed); }) {}

Tensor offload(const std::function<Tensor(std::span<const Tensor>)>& f,
               std::span<const Tensor> inputs, Allocator& target) {
  const OffloadSaved elsewhere(target);
  return f(inputs);
}

}  // namespace tenon::autograd
