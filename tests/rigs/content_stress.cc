#include "rigs/content_stress.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/base/random.h"

namespace tenon {
namespace {

// One thread's part.
class Worker {
 public:
  Worker(CudaBackend& backend, DeviceAllocator& allocator, StampKernels& kernels,
         const ContentStressOptions& options, std::uint64_t number)
      : backend_(backend),
        allocator_(allocator),
        kernels_(kernels),
        options_(options),
        random_(options.seed * 1000 + number),
        next_stamp_((number + 1) << 56) {
    for (int i = 0; i < options.streams; ++i) streams_.push_back(backend.create_stream());
  }

  ContentStressResult run(std::uint64_t operations) {
    const auto start = std::chrono::steady_clock::now();
    const auto is_late = [&] {
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      return options_.most_seconds != 0 && passed.count() >= options_.most_seconds;
    };
    for (; result_.operations < operations; ++result_.operations) {
      if (result_.operations % 4096 == 4095 && is_late()) break;
      step();
    }
    while (!blocks_.empty()) free_one(blocks_.size() - 1);
    for (const Stream stream : streams_) backend_.synchronize(stream);
    return result_;
  }

 private:
  struct Block {
    DataPtr data;
    std::uint64_t size_bytes = 0;
    std::uint64_t stamp = 0;
    Stream stream;
  };

  void step() {
    if (random_.chance(options_.empty_cache_chance)) return allocator_.empty_cache();
    const bool full = live_bytes_ >= options_.max_live_bytes;
    if (blocks_.empty() || (!full && random_.chance(0.52)))
      allocate();
    else
      free_one(random_.below(blocks_.size()));
  }

  void allocate() {
    std::uint64_t top = options_.max_bytes;
    for (std::uint64_t halvings = random_.below(16); halvings > 0 && top > 16; --halvings) top /= 2;
    Block block;
    block.size_bytes = random_.between(top / 2, top);
    block.stream = streams_[random_.below(streams_.size())];
    block.stamp = next_stamp_++;
    try {
      block.data = allocator_.allocate_on(block.size_bytes, block.stream);
    } catch (const OutOfMemory&) {
      ++result_.out_of_memory;
      return;
    }
    ++result_.allocations;
    kernels_.stamp(block.stream, block.data.get(), block.size_bytes, block.stamp, options_.stride);
    live_bytes_ += block.size_bytes;
    blocks_.push_back(std::move(block));
  }

  void free_one(std::size_t index) {
    std::swap(blocks_[index], blocks_.back());
    Block block = std::move(blocks_.back());
    blocks_.pop_back();
    live_bytes_ -= block.size_bytes;
    const Stream other = streams_[random_.below(streams_.size())];
    if (other != block.stream && random_.chance(options_.lend_chance)) lend(block, other);
    kernels_.check(block.stream, block.data.get(), block.size_bytes, block.stamp, options_.stride);
    block.data.clear();
  }

  // The other stream looks at the block once its own has written it; nobody waits for that but the
  // allocator.
  void lend(const Block& block, Stream other) {
    const Event written = backend_.record(block.stream);
    backend_.stream_wait(other, written);
    backend_.destroy_event(written);
    kernels_.check(other, block.data.get(), block.size_bytes, block.stamp, options_.stride);
    allocator_.record_stream(block.data, other);
    ++result_.lent;
  }

  CudaBackend& backend_;
  DeviceAllocator& allocator_;
  StampKernels& kernels_;
  const ContentStressOptions& options_;
  Random random_;
  std::uint64_t next_stamp_;
  std::uint64_t live_bytes_ = 0;
  std::vector<Stream> streams_;  // stay until the backend goes: the allocator has heaps for them
  std::vector<Block> blocks_;
  ContentStressResult result_;
};

}  // namespace

ContentStressResult run_content_stress(CudaBackend& backend, DeviceAllocator& allocator,
                                       const ContentStressOptions& options) {
  StampKernels kernels(backend);
  const auto threads = static_cast<std::uint64_t>(std::max(options.threads, 1));
  std::mutex mutex;
  ContentStressResult total;
  std::exception_ptr failure;
  const auto work = [&](std::uint64_t number) {
    try {
      Worker worker(backend, allocator, kernels, options, number);
      const ContentStressResult part = worker.run(options.operations / threads);
      const std::lock_guard lock(mutex);
      total.operations += part.operations;
      total.allocations += part.allocations;
      total.lent += part.lent;
      total.out_of_memory += part.out_of_memory;
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (std::uint64_t i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
  total.wrong_words = kernels.wrong_words();
  return total;
}

}  // namespace tenon
