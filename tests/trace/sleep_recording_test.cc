// Memory that sleeps, and buffers that grow, in recordings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/device/sleeping/sleeping_backend.h"
#include "tenon/memory/growable/growable_buffer.h"
#include "tenon/memory/policies.h"
#include "tenon/trace/csv.h"
#include "tenon/trace/load.h"
#include "tenon/trace/recording_scope.h"
#include "tenon/trace/write.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Listening {
 public:
  explicit Listening(Recorder& recorder) : recorder_(recorder) { add_sleep_listener(&recorder_); }
  ~Listening() { remove_sleep_listener(&recorder_); }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  Recorder& recorder_;
};

// One word for each event and mark, in order.
std::vector<std::string> story(const Trace& trace) {
  std::vector<std::string> words;
  std::size_t mark = 0;
  for (std::size_t i = 0; i <= trace.events.size(); ++i) {
    for (; mark < trace.marks.size() && trace.marks[mark].event <= i; ++mark)
      words.push_back(std::string(mark_kind_name(trace.marks[mark].kind)) + " " +
                      std::string(trace.sites->text(trace.marks[mark].text)) + " " +
                      std::to_string(trace.marks[mark].size_bytes >> 20));
    if (i == trace.events.size()) break;
    const TraceEvent& event = trace.events[i];
    words.push_back((event.op == TraceOp::kAlloc ? "+" : "-") +
                    std::to_string(event.size_bytes >> 20));
  }
  return words;
}

class SleepRecording : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Policies, SleepRecording, ::testing::Values("system", "buddy", "stitched"),
                         [](const auto& which) { return which.param; });

TEST_P(SleepRecording, FreesBlocksThatSleepAndAllocatesThemWhenTheyWake) {
  SimBackend device({.capacity_bytes = 1 << 30});
  SleepingBackend weights(device, "weights"), caches(device, "caches");
  const auto of_weights = make_policy(GetParam(), weights);
  const auto of_caches = make_policy(GetParam(), caches);
  Recorder recorder("run");
  const Listening listening(recorder);
  const ObserverGuard first(of_weights->observers(), recorder);
  const ObserverGuard second(of_caches->observers(), recorder);
  DataPtr weight = of_weights->allocate(8 << 20);
  DataPtr other = of_weights->allocate(4 << 20);
  DataPtr cache = of_caches->allocate(16 << 20);
  const std::string held = std::to_string(weights.awake_bytes() >> 20);
  weights.sleep(SleepLevel::kDrop);
  other.clear();  // asleep: no event
  const DataPtr meanwhile = of_caches->allocate(2 << 20);
  weights.wake();
  weight.clear();
  const std::vector<std::string> words = story(recorder.take());
  // The policy may have several ranges, or give what is free asleep back.
  const auto at = [&](const std::string& word) {
    return std::find(words.begin(), words.end(), word) - words.begin();
  };
  EXPECT_EQ(at("+8"), 0);
  EXPECT_EQ(std::count(words.begin(), words.end(), "-4"), 1) << "at its sleep";
  EXPECT_EQ(std::count(words.begin(), words.end(), "+8"), 2) << "and when it wakes";
  EXPECT_EQ(std::count(words.begin(), words.end(), "-8"), 2);
  EXPECT_EQ(std::count(words.begin(), words.end(), "-16"), 0) << "another tag";
  EXPECT_LT(at("-8"), at("+2"));
  EXPECT_EQ(words.back(), "-8");
  if (GetParam() == "stitched") {
    EXPECT_THAT(words, ElementsAre("+8", "+4", "+16", "-8", "-4", "sleep_dropped weights " + held,
                                   "+2", "wake weights " + held, "+8", "-8"));
  }
}

TEST(SleepRecordings, KnowWhatIsAllocatedAsleepAndWhoseAddressesAreGone) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const Device device{DeviceType::kSim, 0};
  Recorder recorder("run");
  const auto tell = [&](MemoryEvent event, std::uint64_t address) {
    recorder.on_memory_event(
        {event, reinterpret_cast<void*>(address * kMiB), kMiB, Stream{device, 0}, {}});
  };
  const auto sleeps = [&](SleepChange::What what, std::uint64_t address, std::uint64_t size,
                          std::uint64_t memory) {
    recorder.on_sleep({what, device, "w", {{address * kMiB, size * kMiB, memory * kMiB}}});
  };
  sleeps(SleepChange::What::kToHost, 10, 4, 4);
  tell(MemoryEvent::kRecycled, 10);  // handed out asleep
  tell(MemoryEvent::kRecycled, 11);
  sleeps(SleepChange::What::kToHost, 20, 1, 0);  // mapped asleep
  tell(MemoryEvent::kRecycled, 20);
  tell(MemoryEvent::kFreed, 11);
  sleeps(SleepChange::What::kGone, 11, 1, 0);
  tell(MemoryEvent::kAllocated, 11);  // other memory at the same address
  sleeps(SleepChange::What::kWoke, 10, 1, 1);
  sleeps(SleepChange::What::kWoke, 12, 9, 2);
  EXPECT_THAT(story(recorder.take()), ElementsAre("sleep_to_host w 4", "+1", "wake w 1", "+1",
                                                  "wake w 2", "+1"));
}

// What the ring forgets still says what sleeps.
TEST(SleepRecordings, RememberWhatSleptBeforeTheOldestEvent) {
  SimBackend device({.capacity_bytes = 1 << 30});
  SleepingBackend weights(device, "weights");
  const auto system = make_policy("system", weights);
  const auto others = make_policy("system", device);
  Recorder recorder("run", {.capacity_events = 4});
  const Listening listening(recorder);
  const ObserverGuard first(system->observers(), recorder);
  const ObserverGuard second(others->observers(), recorder);
  const DataPtr weight = system->allocate(8 << 20);
  weights.sleep(SleepLevel::kDrop);
  for (int i = 0; i < 3; ++i) others->allocate(1 << 20);
  EXPECT_EQ(recorder.peek()[0].early_blocks, 0u) << "it sleeps";
  weights.wake();
  EXPECT_EQ(story(recorder.take()).back(), "+8");
}

TEST(SleepRecordings, GoThroughFiles) {
  for (const char* ending : {".csv", ".csv.zst", ".pickle"}) {
    SCOPED_TRACE(ending);
    const testing::TemporaryFile file(ending);
    SimBackend device({.capacity_bytes = 1 << 30});
    SleepingBackend weights(device, "the weights, and biases");
    const auto policy = make_policy("expandable", weights);
    {
      RecordingScope recording(file.path());
      const DataPtr block = policy->allocate(30 << 20);
      weights.sleep(SleepLevel::kDrop);
      weights.wake();
    }
    const std::string tag = std::string(ending) == ".pickle" ? "the weights, and biases"
                                                             : "the weights; and biases";
    const Trace trace = load_traces(file.path()).at(0);
    EXPECT_THAT(story(trace), ElementsAre("+30", "-30", "sleep_dropped " + tag + " 40",
                                          "wake " + tag + " 40", "+30", "-30"));
    EXPECT_EQ(format_csv(parse_csv(format_csv(trace), "x")), format_csv(trace));
  }
  const testing::TemporaryFile json(".json");
  SimBackend device({.capacity_bytes = 1 << 30});
  SleepingBackend weights(device, "weights");
  const auto policy = make_policy("system", weights);
  {
    RecordingScope recording(json.path());
    const DataPtr block = policy->allocate(2 << 20);
    weights.sleep(SleepLevel::kDrop);
  }
  EXPECT_THAT(json.contents(), HasSubstr("sleep_dropped weights"));
}

TEST(GrowthRecordings, HaveEachPageOfAGrowableBuffer) {
  SimBackend device({.capacity_bytes = 1 << 30});
  const auto pool = PagePool::make(device);
  const std::uint64_t page = pool->page_bytes();
  Recorder recorder("run");
  const ObserverGuard guard(pool->observers(), recorder);
  {
    GrowableBuffer buffer(pool, 100 * page);
    buffer.resize(2 * page + 1);
    const TagGuard tag({nullptr, "kv cache"});
    buffer.commit(5 * page);
    buffer.resize(page);
    buffer.give_back(true);
  }
  const Trace trace = recorder.take();
  EXPECT_EQ(trace.live_peak_bytes(), 5 * page);
  const std::string size = std::to_string(page >> 20);
  EXPECT_THAT(story(trace),
              ElementsAre("+" + size, "+" + size, "+" + size, "+" + size, "+" + size, "-" + size,
                          "-" + size, "-" + size, "-" + size, "-" + size));
  const auto tag = [&](std::size_t event) {
    return trace.sites->text(trace.sites->site(trace.events[event].site).tag);
  };
  EXPECT_EQ(tag(0), "growable buffer");
  EXPECT_EQ(tag(3), "kv cache");
}

}  // namespace
}  // namespace tenon
