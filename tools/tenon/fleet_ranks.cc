#include "fleet_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "commands.h"
#include "ranks.h"
#include "tenon/base/error.h"
#include "tenon/distributed/process_group.h"
#include "tenon/tensor/factories.h"

namespace tenon::command {
namespace {

using distributed::ProcessGroup;
using distributed::Work;

using Clock = std::chrono::steady_clock;

// What a rank tells rank 0, which answers kWantsJob with a job's number or kNoJob. While its files
// are read it says each second that it is there, and rank 0 says so to the ranks that have no more.
constexpr std::int64_t kWantsJob = 1;
constexpr std::int64_t kIsDone = 2;
constexpr std::int64_t kIsThere = 3;
constexpr std::int64_t kNoJob = -1;
constexpr std::chrono::seconds kBeat(1);
constexpr std::chrono::milliseconds kBetweenLooks(2);  // of rank 0, and of ranks that wait for it
constexpr std::chrono::milliseconds kBetweenBeats(100);  // at which a rank looks whether one is due

// One number on its way.
class Word {
 public:
  void receive(ProcessGroup& group, int from) { work_ = group.start_receive(place_, from); }
  void send(ProcessGroup& group, int to, std::int64_t value) {
    work_.wait();  // the one before
    *place_.data_ptr<std::int64_t>() = value;
    work_ = group.start_send(place_, to);
  }
  bool has_arrived() {
    work_.progress();
    return work_.has_arrived();
  }
  std::int64_t wait() {
    work_.wait();
    return *place_.data_ptr<std::int64_t>();
  }

 private:
  const Tensor place_ = empty({1}, DType::kI64);
  Work work_;
};

// Another rank, as rank 0 sees it.
struct Peer {
  int rank = 0;
  bool is_done = false;
  Clock::time_point heard = Clock::now(), told = heard;
  Word from = {};
  Word to = {};
};

class RankedFleet final : public FleetRanks {
 public:
  RankedFleet() : group_(join_ranks()) {}

  bool reports() const override { return group_->rank() == 0; }

  void begin(std::size_t jobs,
             const std::vector<std::pair<std::string, std::string>>& setup) override {
    require_same(*group_, "fleet", setup);
    jobs_ = static_cast<std::int64_t>(jobs);
    for (int rank = 1; reports() && rank < group_->size(); ++rank) {
      peers_.push_back(std::make_unique<Peer>(Peer{.rank = rank}));
      peers_.back()->from.receive(*group_, rank);
    }
  }

  std::optional<std::size_t> next() override {
    const std::int64_t job = reports() ? take() : ask();
    if (job == kNoJob) return std::nullopt;
    return static_cast<std::size_t>(job);
  }

  std::chrono::milliseconds period() const override {
    return reports() ? kBetweenLooks : kBetweenBeats;
  }

  void serve() override {
    const Clock::time_point now = Clock::now(), before = std::exchange(served_, now);
    if (!reports() && now - told_ >= kBeat) {
      there_.send(*group_, 0, kIsThere);
      told_ = now;
    }
    there_.has_arrived();  // lets MPI move it
    for (const auto& peer : peers_) {
      if (now - before > kBeat) peer->heard = now;  // this rank did not listen
      while (!peer->is_done && peer->from.has_arrived()) hear(*peer);
      if (peer->is_done)
        tell_waiting(*peer, now);
      else
        require_heard(peer->rank, "reads files", peer->heard);
    }
  }

  // MPI's own end keeps a processor busy while it waits: all come to it together.
  void wait() override {
    if (reports())
      wait_for_all();
    else
      wait_for_the_end();
  }

  void leave() override {
    for (const auto& peer : peers_) {
      peer->to.send(*group_, peer->rank, kNoJob);
      peer->to.wait();
    }
    peers_.clear();
    there_.wait();
    group_.reset();
    leave_ranks(kSuccess);
  }

 private:
  static void pause() { std::this_thread::sleep_for(kBetweenLooks); }

  void require_heard(int rank, const char* what, Clock::time_point heard) const {
    if (Clock::now() - heard <= std::chrono::duration<double>(timeout_)) return;
    throw DeviceError(fmt::format("rank {} {} and has not been heard of for {} s: it hangs or is "
                                  "gone (TENON_RANK_TIMEOUT sets the seconds)",
                                  rank, what, timeout_));
  }

  void wait_for_all() {
    for (const auto& peer : peers_)
      while (!peer->is_done) {
        pause();
        serve();
      }
  }

  void tell_waiting(Peer& peer, Clock::time_point now) {
    if (now - peer.told < kBeat || !peer.to.has_arrived()) return;
    peer.to.send(*group_, peer.rank, kIsThere);
    peer.told = now;
  }

  // However long the others work.
  void wait_for_the_end() {
    Word done;
    done.send(*group_, 0, kIsDone);
    while (hear_first("reads files or writes the report") != kNoJob) {
    }
    done.wait();
  }

  // What rank 0 says next; `what` is what it does meanwhile.
  std::int64_t hear_first(const char* what) {
    Word answer;
    answer.receive(*group_, 0);
    Clock::time_point start = Clock::now();
    for (Clock::time_point looked = start; !answer.has_arrived(); pause()) {
      const Clock::time_point before = std::exchange(looked, Clock::now());
      if (looked - before > kBeat) start = looked;  // this rank did not listen
      if (may_give_up()) require_heard(0, what, start);
    }
    return answer.wait();
  }

  // Ranks that began to wait at different times give up at the same moments of the machine's clock.
  // The lowest reports it first (report_as_rank) and has ended the others before they say the same.
  static bool may_give_up() {
    constexpr std::chrono::milliseconds kApart{2500};  // more than a rank waits to report
    constexpr std::chrono::milliseconds kMoment{100};
    return std::chrono::system_clock::now().time_since_epoch() % kApart < kMoment;
  }

  void hear(Peer& peer) {
    const std::int64_t word = peer.from.wait();
    peer.heard = Clock::now();
    peer.is_done = word == kIsDone;
    if (word == kWantsJob) peer.to.send(*group_, peer.rank, take());
    if (!peer.is_done) peer.from.receive(*group_, peer.rank);
  }

  std::int64_t take() { return begun_ == jobs_ ? kNoJob : begun_++; }

  std::int64_t ask() {
    Word question;
    question.send(*group_, 0, kWantsJob);
    const std::int64_t job = hear_first("hands out files");
    question.wait();
    return job;
  }

  std::shared_ptr<ProcessGroup> group_;
  const double timeout_ = rank_timeout();
  Clock::time_point served_ = Clock::now(), told_ = served_;
  Word there_;
  std::int64_t jobs_ = 0;
  std::int64_t begun_ = 0;  // rank 0's
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace

std::unique_ptr<FleetRanks> join_fleet() { return std::make_unique<RankedFleet>(); }

}  // namespace tenon::command
