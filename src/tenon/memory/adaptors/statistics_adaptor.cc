#include "tenon/memory/adaptors/statistics_adaptor.h"

#include <algorithm>
#include <bit>

namespace tenon {

template <typename Base>
DataPtr StatisticsAdaptor<Base>::serve(std::size_t size_bytes, Stream stream) {
  DataPtr inner;
  try {
    inner = this->from_upstream(size_bytes, stream);
  } catch (...) {
    const std::lock_guard guard(lock_);
    ++passed_.failures;
    throw;
  }
  DataPtr data = this->wrap(std::move(inner), size_bytes, stream);
  const std::lock_guard guard(lock_);
  if (size_bytes == 0) ++passed_.zero_requests;
  if (data == nullptr) return data;
  passed_.blocks.increase(1);
  passed_.bytes.increase(static_cast<std::int64_t>(size_bytes));
  passed_.largest_bytes = std::max<std::uint64_t>(passed_.largest_bytes, size_bytes);
  const auto octave = static_cast<std::size_t>(std::bit_width(size_bytes) - 1);
  ++passed_.by_octave[std::min(octave, passed_.by_octave.size() - 1)];
  return data;
}

template <typename Base>
void StatisticsAdaptor<Base>::take_back(std::unique_ptr<Block> block) {
  {
    const std::lock_guard guard(lock_);
    passed_.blocks.decrease(1);
    passed_.bytes.decrease(static_cast<std::int64_t>(block->size_bytes));
  }
  Adaptor<Base>::take_back(std::move(block));
}

template <typename Base>
PassedStatistics StatisticsAdaptor<Base>::passed() const {
  const std::lock_guard guard(lock_);
  return passed_;
}

template <typename Base>
void StatisticsAdaptor<Base>::reset_passed_peaks() {
  const std::lock_guard guard(lock_);
  passed_.blocks.peak = passed_.blocks.current;
  passed_.bytes.peak = passed_.bytes.current;
}

template class StatisticsAdaptor<Allocator>;
template class StatisticsAdaptor<DeviceAllocator>;

}  // namespace tenon
