// A tensor's gradient and its place in the graph.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tenon/autograd/node.h"
#include "tenon/ops/dispatch.h"

namespace tenon::autograd {

// True while the autograd layer ignores what happens on this thread: inside a recorded operator,
// and in a backward that is not recorded itself.
inline bool recording_suspended() {
  return ops::detail::thread_keys.excluded.has(DispatchKey::kAutograd);
}
inline bool recording() { return grad_enabled() && !recording_suspended(); }

// Records again where recording is suspended (hooks, recomputed calls), until the guard ends.
class RecordAgain {
 public:
  explicit RecordAgain(bool enable_grad = true)
      : previous_(ops::detail::thread_keys), mode_(enable_grad) {
    ops::detail::thread_keys.excluded =
        ops::detail::thread_keys.excluded.remove(DispatchKey::kAutograd);
  }
  ~RecordAgain() { ops::detail::thread_keys = previous_; }
  RecordAgain(const RecordAgain&) = delete;
  RecordAgain& operator=(const RecordAgain&) = delete;

 private:
  const ops::detail::ThreadKeys previous_;
  const GradModeGuard mode_;
};

// 64 bytes, made when a tensor begins to need it. Views of tensors that have one get one, too, and
// keep their base: an in-place change of either must reach the other's history.
//
// Threads: as TensorImpl. The lock is for what forward threads share: the accumulator of a leaf and
// the history of a view, both made at need.
class AutogradMeta final : public AutogradMetaInterface {
 public:
  AutogradMeta() = default;
  ~AutogradMeta() override {
    if (grad_fn_) drop_node(std::move(grad_fn_));
  }

  void set_requires_grad(bool requires_grad, TensorImpl& self) override;
  bool requires_grad() const override { return needs_grad(); }
  Tensor& mutable_grad() override { return grad_; }
  const Tensor& grad() const override { return grad_; }
  const Tensor& fw_grad(std::uint64_t level, const Tensor& self) const override;
  bool may_have_tangent() const override;
  void set_fw_grad(const Tensor& tangent, const Tensor& self, std::uint64_t level,
                   bool is_inplace) override;
  void view_created(const Tensor& base, Tensor& view, const ViewInfo& info) override;
  void views_created(const Tensor& base, std::span<Tensor> views,
                     std::span<const ViewInfo> infos) override;
  void copied(const Tensor& source, Tensor& copy) override;
  void check_writable(const Tensor& target, const Tensor& source) override;
  void written(Tensor& target, const Tensor& source) override;
  void indexed(const Tensor& source, Tensor& result, std::span<const Tensor> indices,
               std::int64_t first) override;
  void index_written(Tensor& target, std::span<const Tensor> indices, const Tensor& values,
                     std::int64_t first, bool accumulate) override;

  // A view needs what its base needs: the base may have got a history since.
  bool needs_grad() const {
    return requires_grad_ || (base_.defined() && !made_without_grad_ && base_.requires_grad());
  }

  static void* operator new(std::size_t) { return BlockCache<kBytes>::allocate(); }
  static void operator delete(void* meta) { BlockCache<kBytes>::deallocate(meta); }

  static constexpr std::size_t kBytes = 72;

  // Makes a fresh view's metadata: what its base is, and what that means for its gradient.
  void follow(const Tensor& base, Tensor& view) const;

  struct Tangent {
    std::uint64_t level;
    Tensor value;
  };
  struct Extra {
    std::vector<Tangent> tangents;
    NodePtr kept_accumulator;  // of a leaf with hooks
  };

  Tensor grad_;
  NodePtr grad_fn_;
  WeakIntrusivePtr<Node> accumulator_;
  std::unique_ptr<Extra> extra_;
  Tensor base_;                     // of a view; never a view itself
  std::uint32_t output_nr_ = 0;     // of grad_fn_
  std::uint32_t view_version_ = 0;  // of a view: the version that grad_fn_ stands for
  bool requires_grad_ = false;
  bool retains_grad_ = false;
  bool made_without_grad_ = false;  // a view made while nothing was recorded
  SpinLock lock_;
};

inline AutogradMeta* meta_of(const Tensor& t) {
  return static_cast<AutogradMeta*>(t.impl()->autograd_meta());
}
inline AutogradMeta& ensure_meta(const Tensor& t) {
  return static_cast<AutogradMeta&>(t.impl()->ensure_autograd_meta());
}
inline bool needs_grad(const Tensor& t) {
  if (!t.defined()) return false;
  const AutogradMeta* meta = meta_of(t);
  return meta != nullptr && meta->needs_grad();
}

// Where the gradient of a tensor goes. No node where it needs none. Thread-safe.
Edge gradient_edge(const Tensor& t);

// --- History of in-place changes (view_history.cc).

// Throws InvalidArgument, before anything is written, where an in-place change that is recorded
// would be wrong: of a leaf that requires a gradient, of a view of one, of a view made while
// nothing was recorded, of a tensor whose memory others see without a link to it.
void check_in_place(const char* what, const Tensor& target);
// Throws for the last of these alone: what a change that only has tangents needs.
void check_views_are_watched(const char* what, const Tensor& target);
// `target` was changed in place, once: `node` made its values. Its base's other views follow.
void rebase_history(const Tensor& target, NodePtr node);

}  // namespace tenon::autograd
