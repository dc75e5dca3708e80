// One program with libtorch and Tenon: tensors go both ways by DLPack, both compute the same, each
// throws its own exceptions, and both keep what the other's threads and libraries do.
#include <ATen/DLConvertor.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <cstdio>
#include <thread>

#include "tenon/base/error.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/matmul.h"
#include "tenon/tensor/interop/dlpack.h"

namespace {

int failures = 0;
void check(bool good, const char* what) {
  if (good) return;
  ++failures;
  std::printf("failed: %s\n", what);
}

// The same bytes.
tenon::Tensor to_tenon(const at::Tensor& tensor) {
  return tenon::from_dlpack(at::toDLPack(tensor));
}
at::Tensor to_torch(const tenon::Tensor& tensor) {
  return at::fromDLPack(tenon::to_dlpack(tensor));
}

void compare_results() {
  const at::Tensor a = at::rand({300, 200}), b = at::rand({200, 100});
  check(at::allclose(to_torch(tenon::ops::matmul(to_tenon(a), to_tenon(b))), at::matmul(a, b)),
        "products of matrices");
  const at::Tensor image = at::rand({2, 16, 24, 24}), weight = at::rand({32, 16, 3, 3});
  check(at::allclose(to_torch(tenon::ops::conv2d(to_tenon(image), to_tenon(weight))),
                     at::conv2d(image, weight), 1e-4, 1e-4),
        "convolutions");
}

void share_bytes() {
  at::Tensor theirs = at::zeros({4, 5});
  tenon::Tensor ours = to_tenon(theirs);
  theirs.add_(1);
  check(static_cast<const float*>(ours.const_data_ptr())[19] == 1, "one memory");
  theirs = at::Tensor();  // ours keeps the bytes
  check(to_torch(ours).sum().item<float>() == 20, "memory that the other library made");
}

template <typename Error, typename Call>
bool throws(Call&& call) {
  try {
    call();
  } catch (const Error&) {
    return true;
  } catch (...) {
  }
  return false;
}

}  // namespace

int main() {
  std::thread other(compare_results);
  compare_results();
  other.join();
  share_bytes();
  const at::Tensor a = at::rand({2, 3});
  check(throws<c10::Error>([&] { at::matmul(a, a); }), "PyTorch's exception");
  check(throws<tenon::InvalidArgument>([&] { tenon::ops::matmul(to_tenon(a), to_tenon(a)); }),
        "Tenon's exception");
  at::set_num_threads(1);
  compare_results();
  std::printf("%s\n", failures == 0 ? "both work" : "they do not work together");
  return failures == 0 ? 0 : 1;
}
