#include "tenon/lab/advice/outside_memory.h"

#include <fmt/format.h>

#include <array>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

constexpr std::array<Card, 3> kCards = {{
    {"rtx3090", 24 * kGiB, 256 * kMiB,
     "measured on an RTX 3090, PyTorch 2.7.1, CUDA 12.8 (github.com/invoke-ai/InvokeAI, 9413)"},
    {"rtx6000ada", 48 * kGiB, 426 * kMiB,
     "measured on an RTX 6000 Ada, PyTorch 2.10, CUDA 13.0 (github.com/unslothai/unsloth-zoo, "
     "1053)"},
    {"other", 0, 512 * kMiB,
     "300 to 400 MB with kernels loaded on demand (github.com/pytorch/pytorch, 107667 and "
     "109888), and a margin"},
}};

// One communicator on A100s with NVLink, after the first all-reduce: github.com/NVIDIA/nccl, 964.
constexpr std::uint64_t kNcclOfTwo = 544 * kMiB;
constexpr std::uint64_t kNcclOfMore = 688 * kMiB;

}  // namespace

std::span<const Card> cards() { return kCards; }

const Card& find_card(std::string_view name) {
  if (name.empty()) return kCards.back();
  std::string known;
  for (const Card& card : kCards) {
    if (card.name == name) return card;
    known += (known.empty() ? "" : ", ") + std::string(card.name);
  }
  throw InvalidArgument(fmt::format(
      "card {}: known are {}; for others give what to reserve for the context: nvidia-smi shows it "
      "for a process that has only called torch.cuda.init()",
      name, known));
}

OutsideMemory outside_memory(const Card& card, std::size_t ranks) {
  OutsideMemory outside{card.context_bytes, 0,
                        fmt::format("CUDA context {}: {}", format_byte_size(card.context_bytes),
                                    card.source)};
  if (ranks < 2) return outside;
  outside.nccl_bytes = ranks == 2 ? kNcclOfTwo : kNcclOfMore;
  outside.source += fmt::format(
      "; one NCCL communicator {}: measured on A100s with NVLink (github.com/NVIDIA/nccl, 964)",
      format_byte_size(outside.nccl_bytes));
  return outside;
}

}  // namespace tenon
