#include "tenon/tensor/autograd_meta.h"

#include <atomic>

#include "tenon/base/error.h"
#include "tenon/tensor/tensor.h"

namespace tenon {
namespace {

std::atomic<const AutogradMetaFactory*> chosen_factory{nullptr};

}  // namespace

void AutogradMetaInterface::views_created(const Tensor& base, std::span<Tensor> views,
                                          std::span<const ViewInfo> infos) {
  for (std::size_t i = 0; i < views.size(); ++i) view_created(base, views[i], infos[i]);
}

void set_autograd_meta_factory(const AutogradMetaFactory* factory) {
  chosen_factory.store(factory, std::memory_order_release);
}

const AutogradMetaFactory& autograd_meta_factory() {
  const AutogradMetaFactory* factory = chosen_factory.load(std::memory_order_acquire);
  if (factory == nullptr)
    throw InvalidArgument(
        "a tensor cannot require a gradient: no autograd layer is linked in "
        "(set_autograd_meta_factory)");
  return *factory;
}

}  // namespace tenon
