#include "tenon/tensor/autograd_meta.h"

#include <atomic>

#include "tenon/base/error.h"

namespace tenon {
namespace {

std::atomic<const AutogradMetaFactory*> chosen_factory{nullptr};

}  // namespace

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
