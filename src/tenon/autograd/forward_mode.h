// Forward mode: tangents that travel with the values. A tangent has the shape and dtype of its
// tensor, floating point or complex. Levels are the calling thread's own. A call with tangents does
// O(levels) more. Throws what the operators of a derivative throw, OutOfMemory and std::bad_alloc.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "tenon/autograd/meta.h"

namespace tenon::autograd {

// Note [Forward levels]
//
// A level is one directional derivative under way. While a ForwardLevel lives on a thread, results
// of calls get tangents from those of their inputs. Levels nest; an inner one is computed first, by
// operators that the outer ones follow, so tangents of tangents are right. A tangent belongs to the
// level it was made for and goes when that ends: fw_grad() returns it until then.
class ForwardLevel {
 public:
  // Throws InvalidArgument for more than eight at once on a thread.
  ForwardLevel();
  ~ForwardLevel();
  ForwardLevel(const ForwardLevel&) = delete;
  ForwardLevel& operator=(const ForwardLevel&) = delete;

  // Never used twice.
  std::uint64_t id() const { return id_; }

 private:
  const std::uint64_t id_;
};

// A view of `primal` with a tangent at a level; of the same shape and dtype, or InvalidArgument.
Tensor make_dual(const Tensor& primal, const Tensor& tangent, const ForwardLevel& level);
// The tangent of a tensor at a level. Undefined stands for zero.
Tensor fw_grad(const Tensor& tensor, const ForwardLevel& level);

// f(inputs) and its derivative along `tangents`. An undefined tangent, of an input or of a result,
// is zero. Costs about twice f for most operators. Those without a formula of their own
// differentiate their backward (Node::tangent). Throws InvalidArgument for another number of
// tangents than of inputs, and as make_dual.
using VectorFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
std::pair<std::vector<Tensor>, std::vector<Tensor>> jvp(const VectorFunction& f,
                                                        std::span<const Tensor> inputs,
                                                        std::span<const Tensor> tangents);

namespace detail {
inline constexpr std::size_t kMaxForwardLevels = 8;
struct ForwardLevels {
  std::size_t depth = 0;                               // levels followed now
  std::array<std::uint64_t, kMaxForwardLevels> ids{};  // the outermost first
};
inline constinit thread_local ForwardLevels forward_levels;
}  // namespace detail

// How many levels the calling thread follows now.
inline std::size_t forward_depth() { return detail::forward_levels.depth; }
// At any level that is followed now.
bool has_tangent(const Tensor& t);
// Gives `result` the tangents that follow from those of the inputs (in the edges' order).
void propagate_tangents(Node& node, std::span<const Tensor* const> inputs, Tensor& result);

// The tangents of levels that are followed now, shared.
void copy_tangents(const Tensor& from, const Tensor& to);

// The tangents of a call's inputs, kept while one of them is overwritten.
class TangentInputs {
 public:
  template <typename... Arguments>
  explicit TangentInputs(std::uint32_t wanted, const Arguments&... arguments) {
    if (wanted == 0) [[likely]]
      return;
    tangents_.resize(forward_depth());
    (take(arguments), ...);
    any_ = true;
  }
  // Whether nothing was kept.
  bool empty() const { return !any_; }
  // Gives `out`, which was overwritten, the tangents that follow from those kept.
  void propagate_in_place(Node& node, const Tensor& out) const;

 private:
  void take(const Tensor& t);
  template <typename T>
  void take(const T&) {}

  std::vector<std::vector<Tensor>> tangents_;  // by level, by input
  bool any_ = false;
};

}  // namespace tenon::autograd
