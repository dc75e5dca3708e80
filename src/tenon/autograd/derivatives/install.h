// Each family sets the kAutograd kernels of its operators.
#pragma once

namespace tenon::autograd {

void install_binary();
void install_unary();
void install_relu();
void install_reduce();
void install_products();
void install_complex();
void install_sparse();
void install_conv();
void install_pool();
void install_normalization();
void install_loss();
void install_select();
void install_shape();
void install_scan();
void install_softmax();
void install_attention();

}  // namespace tenon::autograd
