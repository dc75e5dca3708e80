#include "rigs/schedules/schedule.h"

#include <fmt/format.h>

#include <array>

#include "tenon/base/byte_size.h"
#include "tenon/base/random.h"

namespace tenon {
namespace {

using Kind = ScheduleStep::Kind;

constexpr std::size_t kKinds = 8;

template <typename T, std::size_t N>
T one_of(Random& random, const std::array<T, N>& choices) {
  return choices[random.below(N)];
}

// Draws steps that make sense one after another, as if no request failed.
class Writer {
 public:
  explicit Writer(std::uint64_t seed) : random_(seed) {
    schedule_.seed = seed;
    draw_setting();
    draw_sizes();
    draw_weights();
  }

  Schedule write() {
    const std::uint64_t steps = random_.between(10, random_.chance(0.2) ? 200 : 80);
    while (schedule_.steps.size() < steps) add(draw_kind());
    return std::move(schedule_);
  }

 private:
  void draw_setting() {
    schedule_.streams = static_cast<std::uint32_t>(random_.between(1, 4));
    schedule_.lag_ns = one_of<std::uint64_t, 4>(random_, {0, 100'000, 5'000'000, 1'000'000'000});
    const bool short_of_memory = random_.chance(0.5);
    schedule_.capacity_bytes = short_of_memory ? random_.between(24, 400) * kMiB : kTiB;
    schedule_.page_bytes = random_.chance(0.5) ? 2 * kMiB : 0;
    schedule_.conf = one_of<const char*, 4>(
        random_, {"", "", "max_split_size_mb:24", "garbage_collection_threshold:0.6"});
    schedule_.plan_fits = random_.chance(0.7);
    longest_pause_ns_ = one_of<std::uint64_t, 3>(random_, {1, 20'000, 4'000'000});
    second_thread_ = random_.chance(0.1) ? 0.3 : 0;
  }

  // Any size up to a bound, or a few sizes again and again, as programs do.
  void draw_sizes() {
    const std::uint64_t octaves = random_.between(4, 17);  // up to 64 MiB
    const auto draw = [&] {
      return random_.between(1, std::uint64_t{512} << random_.below(octaves + 1));
    };
    if (random_.chance(0.7))
      for (std::uint64_t n = random_.between(1, 5); n > 0; --n) palette_.push_back(draw());
    octaves_ = octaves;
  }

  void draw_weights() {
    // kAllocate, kUse, kLend, kBorrow, kFree, kStreamWait, kHostWait, kEmptyCache
    constexpr std::array<std::uint64_t, kKinds> kUsual = {40, 10, 12, 6, 34, 3, 1, 2};
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      const bool needed = kind == 0 || kind == 4;  // whatever else: blocks come and go
      const bool left_out = !needed && random_.chance(0.3);
      weights_[kind] = left_out ? 0 : kUsual[kind] * random_.between(1, 3);
      sum_ += weights_[kind];
    }
  }

  Kind draw_kind() {
    std::uint64_t dice = random_.below(sum_);
    std::size_t kind = 0;
    while (dice >= weights_[kind]) dice -= weights_[kind++];
    return static_cast<Kind>(kind);
  }

  std::uint8_t a_stream() {
    return static_cast<std::uint8_t>(random_.below(schedule_.streams));
  }

  std::uint64_t a_size() {
    if (!palette_.empty()) return palette_[random_.below(palette_.size())];
    return random_.between(1, std::uint64_t{512} << random_.below(octaves_ + 1));
  }

  void add(Kind kind) {
    const bool needs_block = kind == Kind::kUse || kind == Kind::kLend || kind == Kind::kBorrow ||
                             kind == Kind::kFree;
    if (needs_block && live_.empty()) kind = Kind::kAllocate;
    ScheduleStep step;
    step.kind = kind;
    step.stream = a_stream();
    step.other = a_stream();
    step.on_second_thread = second_thread_ > 0 && random_.chance(second_thread_);
    step.pause_ns = random_.below(longest_pause_ns_);
    if (kind == Kind::kAllocate) {
      step.block = blocks_++;
      step.size_bytes = a_size();
      live_.push_back(step.block);
    } else if (needs_block && kind != Kind::kAllocate) {
      std::swap(live_[random_.below(live_.size())], live_.back());
      step.block = live_.back();
      if (kind == Kind::kFree) live_.pop_back();
    }
    schedule_.steps.push_back(step);
  }

  Random random_;
  Schedule schedule_;
  std::vector<std::uint32_t> live_;
  std::uint32_t blocks_ = 0;
  std::vector<std::uint64_t> palette_;  // empty: any size up to 512 << octaves_
  std::uint64_t octaves_ = 0;
  std::uint64_t longest_pause_ns_ = 1;
  double second_thread_ = 0;
  std::array<std::uint64_t, kKinds> weights_ = {};
  std::uint64_t sum_ = 0;
};

std::string describe(const ScheduleStep& step) {
  switch (step.kind) {
    case Kind::kAllocate:
      return fmt::format("allocate block {}, {} bytes, on stream {}", step.block, step.size_bytes,
                         step.stream);
    case Kind::kUse:
      return fmt::format("use block {}", step.block);
    case Kind::kLend:
      return fmt::format("record block {} for stream {} and use it there", step.block,
                         step.stream);
    case Kind::kBorrow:
      return fmt::format("use block {} on stream {}, its own stream waiting", step.block,
                         step.stream);
    case Kind::kFree:
      return fmt::format("free block {}", step.block);
    case Kind::kStreamWait:
      return fmt::format("stream {} waits for stream {}", step.stream, step.other);
    case Kind::kHostWait:
      return fmt::format("the host waits for stream {}", step.stream);
    case Kind::kEmptyCache:
      return "empty the cache";
  }
  return "?";
}

}  // namespace

Schedule random_schedule(std::uint64_t seed) { return Writer(seed).write(); }

std::string to_string(const Schedule& schedule) {
  std::string text = fmt::format(
      "seed {}: {} streams lag {} ns, {} of memory, pages of {} bytes, conf \"{}\", {} steps\n",
      schedule.seed, schedule.streams, schedule.lag_ns, format_byte_size(schedule.capacity_bytes),
      schedule.page_bytes, schedule.conf, schedule.steps.size());
  for (const ScheduleStep& step : schedule.steps)
    text += fmt::format("  +{} ns  {}{}\n", step.pause_ns, describe(step),
                        step.on_second_thread ? " (on the second thread)" : "");
  return text;
}

}  // namespace tenon
