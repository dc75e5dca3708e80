#include "tenon/autograd/derivatives/install.h"

#include "tenon/autograd/meta.h"

namespace tenon::autograd {
namespace {

class MetaFactory final : public AutogradMetaFactory {
 public:
  std::unique_ptr<AutogradMetaInterface> make() const override {
    return std::make_unique<AutogradMeta>();
  }
};

constinit const MetaFactory meta_factory;

}  // namespace

// Kernel tables are constant-initialised, so this may run before main in any order, and again.
bool detail::install() {
  set_autograd_meta_factory(&meta_factory);
  install_binary();
  install_unary();
  install_relu();
  install_reduce();
  install_products();
  install_complex();
  install_sparse();
  install_conv();
  install_pool();
  install_normalization();
  install_loss();
  install_select();
  install_shape();
  install_scan();
  install_softmax();
  install_attention();
  return true;
}

}  // namespace tenon::autograd
