// Adds two tensors.
#include <tenon/ops/operators.h>
#include <tenon/tensor/factories.h>

#include <cstdio>

int main() {
  const tenon::Tensor sum = tenon::ops::add(tenon::ones({2, 3}), tenon::ones({2, 3}));
  const float value = *sum.const_data_ptr<float>();
  std::printf("%g\n", value);
  return value == 2 ? 0 : 1;
}
