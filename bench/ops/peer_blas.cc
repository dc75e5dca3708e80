// OpenBLAS and oneDNN by themselves, on our tensors' memory.
#include <cblas.h>

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "peer.h"
#include "tenon/tensor/factories.h"

extern "C" void omp_set_num_threads(int threads);

namespace tenon::bench {

Call openblas_matmul(const Tensor& a, const Tensor& b, int threads) {
  if (a.dtype() != DType::kF32) return {};
  const auto n = static_cast<blasint>(a.size(0));
  const Tensor out = empty({n, n});
  return [=] {
    if (openblas_get_num_threads() != threads) openblas_set_num_threads(threads);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, a.const_data_ptr<float>(), n,
                b.const_data_ptr<float>(), n, 0, out.data_ptr<float>(), n);
  };
}

Call onednn_matmul(const Tensor& a, const Tensor& b, int threads) {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  omp_set_num_threads(threads);
  using dnnl::memory;
  const auto dtype = a.dtype() == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16;
  const memory::desc shape({a.size(0), a.size(1)}, dtype, memory::format_tag::ab);
  const Tensor out = empty(a.sizes(), a.dtype());
  try {
    const dnnl::matmul::primitive_desc described(dnnl::matmul::desc(shape, shape, shape), engine);
    const dnnl::matmul product(described);
    const auto over = [&](const Tensor& t) {
      return memory(shape, engine, const_cast<void*>(t.const_data_ptr()));
    };
    const memory left = over(a), right = over(b), result = over(out);
    const Call multiply = [=] {
      omp_set_num_threads(threads);
      product.execute(stream,
                      {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}});
      stream.wait();
      static_cast<void>(out);  // keeps the memory
    };
    multiply();  // some that can be described have no kernel for the dtype here
    return multiply;
  } catch (const dnnl::error&) {
    return {};
  }
}

}  // namespace tenon::bench
