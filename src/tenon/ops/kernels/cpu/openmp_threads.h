// How many threads oneDNN may use: it runs on OpenMP's.
#pragma once

// Two of OpenMP's functions, declared here so that its header and compiler flag are not needed.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
}

namespace tenon::ops::cpu {

// Sets the number for the calling thread until the guard ends: OpenMP keeps one for each thread.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(int threads) : previous_(omp_get_max_threads()) {
    if (previous_ != threads) omp_set_num_threads(threads);
  }
  ~OpenMpThreads() { omp_set_num_threads(previous_); }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  const int previous_;
};

}  // namespace tenon::ops::cpu
