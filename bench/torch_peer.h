// What the files have in common that call PyTorch; only they include this.
#pragma once

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <string>

#include "torch_name.h"

extern "C" void omp_set_num_threads(int threads);

namespace tenon::bench {

std::string torch_name() { return "PyTorch " TORCH_VERSION; }

// PyTorch's own loops and its matrix products. Debian's takes these from OpenBLAS, whose number of
// threads Tenon sets to one when it multiplies: so this is called before each measured call.
inline void set_torch_threads(int threads) {
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
  omp_set_num_threads(threads);
#if TORCH_VERSION_MAJOR < 2
  static const auto set_blas =
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  static const auto blas_threads =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_num_threads"));
  if (set_blas != nullptr && blas_threads != nullptr && blas_threads() != threads)
    set_blas(threads);
#endif
}

}  // namespace tenon::bench
