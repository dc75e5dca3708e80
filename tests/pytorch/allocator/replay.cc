// replay TRACE.csv [CAPACITY]: the allocations and frees of a trace over PyTorch's own caching
// allocator, with the settings of PYTORCH_CUDA_ALLOC_CONF. Prints its reserved peak in bytes, or
// that it is out of memory: CAPACITY is a limit as torch.cuda.set_per_process_memory_fraction sets.
#include <c10/cuda/CUDACachingAllocator.h>
#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
#include <c10/cuda/PeerToPeerAccess.h>
#define TENON_HAS_PEERS
#endif
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

namespace allocator = c10::cuda::CUDACachingAllocator;

static void replay(std::FILE* trace) {
  std::unordered_map<unsigned long long, void*> blocks;
  char line[256], op[32];
  while (std::fgets(line, sizeof line, trace) != nullptr) {
    unsigned long long id = 0, bytes = 0, stream = 0;
    if (std::sscanf(line, "%*[^,],%31[^,],%llu,%llu,%llu", op, &id, &bytes, &stream) < 2) continue;
    if (std::strcmp(op, "alloc") == 0) {
      blocks[id] =
          allocator::raw_alloc_with_stream(bytes, reinterpret_cast<cudaStream_t>(16 * stream));
    } else if (std::strcmp(op, "free_completed") == 0) {
      allocator::raw_delete(blocks.at(id));
      blocks.erase(id);
    }
  }
}

int main(int argc, char** argv) {
  std::FILE* trace = argc > 1 ? std::fopen(argv[1], "r") : nullptr;
  if (trace == nullptr) return 2;
#ifdef TENON_HAS_PEERS
  c10::cuda::detail::init_p2p_access_cache(1);
#endif
  allocator::init(1);
  if (argc > 2) {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return 2;
    const double capacity = static_cast<double>(std::strtoull(argv[2], nullptr, 10));
    allocator::setMemoryFraction(capacity / static_cast<double>(total), 0);
  }
  try {
    replay(trace);
    std::printf("%lld\n",
                static_cast<long long>(allocator::getDeviceStats(0).reserved_bytes[0].peak));
  } catch (const c10::OutOfMemoryError&) {
    std::puts("out of memory");
  }
  std::fflush(stdout);
  std::_Exit(0);  // what PyTorch ends with needs a device
}
