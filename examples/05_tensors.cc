// Tensors: views share memory, operators take theirs from the current allocator, and a program's
// memory can be asked before it runs.
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <iostream>

#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/registry.h"
#include "tenon/memory/scopes/with_scope.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/print.h"
#include "tenon/tensor/random.h"

using namespace tenon;

namespace {

// Two layers and a loss.
Tensor loss_of(const Tensor& x, const Tensor& w1, const Tensor& w2, const Tensor& target) {
  const Tensor hidden = ops::relu(ops::linear(x, w1));
  return ops::cross_entropy(ops::linear(hidden, w2), target);
}

}  // namespace

int main() {
  // Views: new metadata (160 bytes), the same bytes.
  const Tensor a = arange(20).view({4, 5});
  const Tensor column = a[{Slice(), 0}];
  fill_(column, -1);
  std::cout << a << "\nfirst column, a view: " << column << "\n";
  std::cout << "storage shared: " << column.is_alias_of(a)
            << ", version of the base: " << a.version() << "\n\n";

  manual_seed(0);
  const Tensor x = randn({64, 784});
  const Tensor w1 = randn({256, 784}), w2 = randn({10, 256});
  const Tensor target = randint(0, 10, {64});

  // Whatever an operator needs comes from the current allocator: here it is counted.
  StatisticsAdaptor<Allocator> counted(*current_allocator(Device{}));
  {
    const AllocatorGuard guard(Device{}, counted);
    std::cout << "loss: " << loss_of(x, w1, w2, target).item<float>() << "\n";
  }
  fmt::print("memory for it, at most: {} bytes\n", counted.passed().bytes.peak);

  // In a scope the temporaries go together at the end; what is returned stays.
  const Tensor kept = with_scope([&] { return loss_of(x, w1, w2, target); });
  std::cout << "from a scope: " << kept.item<float>() << "\n";

  // The same program on the meta device: every shape, no arithmetic, no bytes.
  const Device meta{DeviceType::kMeta, 0};
  const Tensor big = empty({1'000'000, 784}, DType::kF32, meta);
  const Tensor hidden = ops::relu(ops::linear(big, to(w1, meta)));
  fmt::print("a million rows would need {} bytes for the hidden layer\n", hidden.nbytes());
}
