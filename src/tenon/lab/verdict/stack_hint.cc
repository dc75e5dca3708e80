#include "tenon/lab/verdict/stack_hint.h"

#include <algorithm>
#include <array>
#include <string>

namespace tenon {
namespace {

using Bit = bool StackHint::*;

enum class How : std::uint8_t { kIs, kBegins, kHas };
using enum How;

// A frame matches where its function and its file do; an empty text matches anything.
struct Rule {
  std::string_view function;
  How how;
  std::string_view file;  // a part of the path
  Bit bit;
};

constexpr auto kPython = std::to_array<Rule>({
    {"", kHas, "torch/optim/", &StackHint::optimizer},
    {"", kHas, "/optim/", &StackHint::optimizer},
    {"", kHas, "apex/optimizers", &StackHint::optimizer},
    {"", kHas, "deepspeed/ops/adam", &StackHint::optimizer},
    {"", kHas, "deepspeed/runtime/zero/stage", &StackHint::optimizer},
    {"", kHas, "fp16_optimizer", &StackHint::optimizer},
    {"step", kIs, "optim", &StackHint::optimizer},
    {"update", kBegins, "optim", &StackHint::optimizer},
    {"_init_group", kIs, "", &StackHint::optimizer_init},
    {"_init_state", kIs, "", &StackHint::optimizer_init},
    {"init_state", kBegins, "optim", &StackHint::optimizer_init},
    {"_init_param_state", kIs, "", &StackHint::optimizer_init},
    {"__init__", kIs, "optim", &StackHint::optimizer_init},
    {"", kHas, "torch/nn/utils/clip_grad", &StackHint::optimizer_scratch},
    {"clip_grad", kBegins, "", &StackHint::optimizer_scratch},
    {"", kHas, "amp/grad_scaler", &StackHint::optimizer_scratch},

    {"_apply", kIs, "nn/modules/module.py", &StackHint::weights},
    {"to_empty", kIs, "nn/modules/module.py", &StackHint::weights},
    {"reset_parameters", kIs, "", &StackHint::weights},
    {"__init__", kIs, "torch/nn/modules/", &StackHint::weights},
    {"__init__", kIs, "torch/nn/parameter.py", &StackHint::weights},
    {"__new__", kIs, "torch/nn/parameter.py", &StackHint::weights},
    {"init_weight", kHas, "", &StackHint::weights},
    {"load_state_dict", kHas, "", &StackHint::weights},
    {"from_pretrained", kIs, "", &StackHint::weights},
    {"set_module_tensor_to_device", kIs, "", &StackHint::weights},
    {"load_weights", kHas, "", &StackHint::weights},
    {"weight_loader", kHas, "", &StackHint::weights},
    {"create_weights", kIs, "", &StackHint::weights},
    {"load_checkpoint", kBegins, "", &StackHint::weights},
    {"load_model", kBegins, "", &StackHint::weights},
    {"", kHas, "safetensors/torch", &StackHint::weights},
    {"", kHas, "torch/serialization", &StackHint::weights},
    {"", kHas, "fsdp/_flat_param", &StackHint::weights},
    {"", kHas, "_fsdp_param", &StackHint::weights},
    {"zero_grad", kHas, "", &StackHint::gradients},
    {"_ddp_init_helper", kIs, "", &StackHint::gradients},
    {"_reduce_scatter", kHas, "fsdp", &StackHint::gradients},
    {"reduce_scatter", kHas, "fsdp", &StackHint::gradients},
    {"_post_backward", kBegins, "", &StackHint::gradients},

    {"_call_impl", kIs, "nn/modules/module.py", &StackHint::module},
    {"_wrapped_call_impl", kIs, "nn/modules/module.py", &StackHint::module},
    {"forward", kIs, "", &StackHint::module},

    {"closure", kIs, "", &StackHint::boundary},
    {"training_step", kIs, "", &StackHint::boundary},
    {"forward_step", kIs, "", &StackHint::boundary},

    {"", kHas, "torch/nn/modules/loss.py", &StackHint::loss},
    {"cross_entropy", kHas, "", &StackHint::loss},
    {"nll_loss", kHas, "", &StackHint::loss},
    {"criterion", kHas, "", &StackHint::loss},
    {"_loss", kHas, "", &StackHint::loss},
    {"loss_", kHas, "", &StackHint::loss},
    {"Loss", kHas, "", &StackHint::loss},
    {"loss", kIs, "", &StackHint::loss},
    {"kl_div", kIs, "", &StackHint::loss},
    {"", kHas, "/loss/", &StackHint::loss},
    {"", kHas, "loss_utils", &StackHint::loss},
    {"", kHas, "/losses", &StackHint::loss},
    {"", kHas, "/loss.py", &StackHint::loss},

    {"", kHas, "cache_utils", &StackHint::cache},
    {"", kHas, "kv_cache", &StackHint::cache},
    {"", kHas, "kvcache", &StackHint::cache},
    {"", kHas, "cache_engine", &StackHint::cache},
    {"kv_cache", kHas, "", &StackHint::cache},
    {"update_cache", kHas, "", &StackHint::cache},
    {"init_cache", kHas, "", &StackHint::cache},
    {"past_key", kHas, "", &StackHint::cache},
    {"setup_caches", kHas, "", &StackHint::cache},

    {"", kHas, "torch/utils/data/", &StackHint::inputs},
    {"collate", kHas, "", &StackHint::inputs},
    {"prefetch", kHas, "", &StackHint::inputs},
    {"get_batch", kHas, "", &StackHint::inputs},
    {"load_batch", kHas, "", &StackHint::inputs},
    {"next_batch", kHas, "", &StackHint::inputs},
    {"data_loading", kHas, "", &StackHint::inputs},
    {"make_batch", kHas, "", &StackHint::inputs},
    {"to_device", kHas, "", &StackHint::inputs},
    {"send_to_device", kIs, "", &StackHint::inputs},
    {"_prepare_input", kBegins, "", &StackHint::inputs},
    {"transfer_batch", kHas, "", &StackHint::inputs},
    {"_conv_forward", kIs, "", &StackHint::convolution},
});

constexpr auto kNativeRules = std::to_array<Rule>({
    {"at::autocast::cached_cast", kHas, "", &StackHint::cast_of_weight},
    {"convolution", kHas, "", &StackHint::convolution},
    {"c10d::Reducer::", kBegins, "", &StackHint::gradients},
});

// Operators that make a tensor without computing it from others.
constexpr auto kMakers = std::to_array<std::string_view>({"to",
                                                          "_to_copy",
                                                          "cuda",
                                                          "copy_",
                                                          "clone",
                                                          "pin_memory",
                                                          "empty",
                                                          "zeros",
                                                          "ones",
                                                          "full",
                                                          "randn",
                                                          "rand",
                                                          "randint",
                                                          "randperm",
                                                          "arange",
                                                          "tensor",
                                                          "as_tensor",
                                                          "empty_like",
                                                          "zeros_like",
                                                          "ones_like",
                                                          "rand_like",
                                                          "randn_like",
                                                          "normal_",
                                                          "uniform_",
                                                          "from_file",
                                                          "empty_strided",
                                                          "new_empty",
                                                          "new_zeros",
                                                          "normal",
                                                          "multinomial",
                                                          "sparse_csr_tensor"});

constexpr auto kLossOps = std::to_array<std::string_view>(
    {"cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d", "mse_loss", "l1_loss",
     "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "smooth_l1_loss",
     "huber_loss", "ctc_loss", "_ctc_loss", "cosine_embedding_loss", "triplet_margin_loss",
     "hinge_embedding_loss", "margin_ranking_loss", "soft_margin_loss", "poisson_nll_loss"});

bool text_matches(std::string_view text, std::string_view pattern, How how) {
  if (pattern.empty()) return true;
  switch (how) {
    case kIs:
      return text == pattern;
    case kBegins:
      return text.starts_with(pattern);
    case kHas:
      return text.find(pattern) != std::string_view::npos;
  }
  return false;
}

template <typename Table>
void apply(const Table& rules, std::string_view function, std::string_view file, StackHint& out) {
  for (const Rule& rule : rules)
    if (text_matches(function, rule.function, rule.how) && text_matches(file, rule.file, kHas))
      out.*rule.bit = true;
}

constexpr auto kBits = std::to_array<Bit>(
    {&StackHint::optimizer, &StackHint::optimizer_init, &StackHint::optimizer_scratch,
     &StackHint::weights, &StackHint::gradients, &StackHint::module, &StackHint::boundary,
     &StackHint::loss, &StackHint::cache, &StackHint::inputs, &StackHint::cast_of_weight,
     &StackHint::convolution});

StackHint hint_of_frame(const SiteTable& sites, std::uint32_t number, FrameKind kind) {
  StackHint hint;
  const Frame& frame = sites.frame(number);
  const std::string_view function = sites.text(frame.function);
  if (!is_python(kind)) {
    apply(kNativeRules, function, "", hint);
    return hint;
  }
  std::string file(sites.text(frame.file));
  std::replace(file.begin(), file.end(), '\\', '/');
  apply(kPython, function, file, hint);
  if (kind == FrameKind::kUser && !function.starts_with("step") &&
      !function.starts_with("update") && !function.starts_with("_") &&
      !function.starts_with("init"))
    hint.optimizer = false;  // a folder's name
  // Words of these sorts in PyTorch's own files mean something else.
  if (kind == FrameKind::kTorch || kind == FrameKind::kStandard || kind == FrameKind::kGenerated) {
    hint.cache = false;
    if (file.find("torch/utils/data/") == std::string::npos) hint.inputs = false;
    if (function != "cross_entropy" && file.find("loss") == std::string::npos &&
        function.find("_loss") == std::string_view::npos)
      hint.loss = false;
  }
  return hint;
}

template <typename List>
bool holds(const List& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

}  // namespace

std::vector<StackHint> stack_hints(const SiteTable& sites, const CallSiteTable& table) {
  std::vector<StackHint> frames;
  frames.reserve(sites.frames());
  for (std::uint32_t frame = 0; frame < sites.frames(); ++frame)
    frames.push_back(hint_of_frame(sites, frame, table.kind(frame)));
  std::vector<StackHint> stacks(sites.stacks());
  for (std::uint32_t stack = 0; stack < stacks.size(); ++stack) {
    StackHint& hint = stacks[stack];
    // From the inside out. What stands outside a module's forward (a trainer's compute_loss, an
    // optimiser that calls a closure) says nothing of what the module does.
    for (const std::uint32_t frame : sites.stack(stack)) {
      for (const Bit bit : kBits) hint.*bit |= frames[frame].*bit;
      if (hint.module || hint.boundary) break;
    }
    const CallSite& site = table.call_site(table.of_stack(stack));
    hint.makes_or_moves = holds(kMakers, site.op);
    hint.loss |= holds(kLossOps, site.op);
    if (hint.optimizer_init) hint.optimizer = true;
  }
  return stacks;
}

}  // namespace tenon
