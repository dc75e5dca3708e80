// What both libraries run, seen without either's headers.
#pragma once

namespace tenon::bench {

// Nanoseconds of the fastest of several rounds, or 0 where the build has no PyTorch.
double torch_chain_ns(int threads, int length, int elements);
double torch_step_ns(int threads, int inputs, int hidden, int outputs, int batch);

}  // namespace tenon::bench
