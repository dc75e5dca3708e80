#include "tenon/autograd/anomaly.h"

#include <fmt/format.h>

#include "tenon/autograd/meta.h"
#include "tenon/autograd/record.h"
#include "tenon/base/call_stack.h"
#include "tenon/base/error.h"
#include "tenon/ops/reduce.h"
#include "tenon/ops/unary.h"

namespace tenon::autograd {
namespace {

constexpr int kDepth = 24;

std::string place_of(const Node& node) {
  if (node.extra() == nullptr || node.extra()->made_at.empty())
    return "; the forward call was made outside of AnomalyMode, so where is not known";
  return ". The forward call:\n" + node.extra()->made_at;
}

}  // namespace

AnomalyMode::AnomalyMode(bool check_forward) : previous_(detail::anomaly_mode) {
  detail::anomaly_mode = check_forward ? 2 : 1;
}
AnomalyMode::~AnomalyMode() { detail::anomaly_mode = previous_; }

bool has_nan(const Tensor& t) {
  if (!t.defined() || t.numel() == 0 || t.device().type != DeviceType::kCpu) return false;
  if (!is_floating(t.dtype()) && !is_complex(t.dtype())) return false;
  const ops::KeyGuard below(DispatchKey::kAutograd);
  return ops::any(ops::isnan(t.detach())).item<bool>();
}

void check_gradients(const Node& node, std::span<const Tensor> gradients) {
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (has_nan(gradients[i]))
      throw InvalidArgument(fmt::format("backward: {} gave a gradient with NaN for its input {}{}",
                                        node.name(), i, place_of(node)));
}

void detail::note_call(Node& node) {
  node.ensure_extra().made_at = CallStack::capture(kDepth, 1).to_string();
}

void detail::check_result(const Node& node, const Tensor& result) {
  if (anomaly_mode > 1 && has_nan(result))
    throw InvalidArgument(fmt::format("{} made a result with NaN{}", node.name(), place_of(node)));
}

}  // namespace tenon::autograd
