#include "tenon/distributed/mpi_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "tenon/base/environment.h"
#include "tenon/base/error.h"
#include "tenon/base/parse_real.h"

namespace tenon::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration;
using std::chrono::milliseconds;

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw DeviceError(fmt::format("MPI: {}: {}", what, text));
}

// Note [Progress]. MPI moves most data only while the process calls it. So a thread calls it while
// transfers are under way and the group's thread computes. Small transfers cost less than its calls
// and are left to wait(). calls() is held for every call to MPI, which MPI_THREAD_SERIALIZED asks
// for.
class Progress {
 public:
  explicit Progress(MPI_Comm comm) : comm_(comm) {
    sigset_t all, before;  // signals are for the program's own threads
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Progress() {
    change([&] { stopped_ = true; });
    thread_.join();
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  std::unique_lock<std::mutex> calls() { return std::unique_lock(calls_); }
  // A transfer is under way, and wait() was not called yet.
  void begin() {
    change([&] { ++under_way_; });
  }
  void end() {
    change([&] { --under_way_; });
  }

 private:
  template <typename Change>
  void change(Change&& make) {
    const std::lock_guard lock(state_);
    make();
    changed_.notify_one();
  }

  void run() {
    constexpr std::chrono::microseconds kBetweenCalls(100);
    constexpr int kTagOfNoMessage = 1;
    for (std::unique_lock lock(state_);;) {
      changed_.wait(lock, [&] { return stopped_ || under_way_ > 0; });
      if (stopped_) return;
      lock.unlock();
      std::this_thread::sleep_for(kBetweenCalls);
      {
        const auto calling = calls();
        int found = 0;  // wait() finds a failure
        MPI_Iprobe(MPI_ANY_SOURCE, kTagOfNoMessage, comm_, &found, MPI_STATUS_IGNORE);
      }
      lock.lock();
    }
  }

  const MPI_Comm comm_;
  std::mutex calls_, state_;
  std::condition_variable changed_;
  int under_way_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

// Note [Roll call]. A rank that waits longer than the timeout sends a message to the ranks that it
// waits for, on a separate communicator. Each rank that waits sees the message and sends its own to
// all. Ranks that have sent none after a second do not wait: they hang, or have ended.
class RollCall {
 public:
  RollCall(MPI_Comm comm, double timeout_seconds) : comm_(comm), timeout_(timeout_seconds) {}
  ~RollCall() { MPI_Comm_free(&comm_); }
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  MPI_Comm comm() const { return comm_; }

  // Called every 100 ms while a rank waits. `members`: ranks of MPI_COMM_WORLD.
  void look(const char* what, const std::vector<int>& members, Clock::time_point since) {
    const bool late = duration<double>(Clock::now() - since).count() > timeout_;
    if (late || hear()) call(what, members);
  }

 private:
  // Receives one message, if there is one.
  bool hear() {
    int found = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, 0, comm_, &found, &status), "roll call");
    if (found == 0) return false;
    check(MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, 0, comm_, MPI_STATUS_IGNORE),
          "roll call");
    heard_.insert(status.MPI_SOURCE);
    return true;
  }

  [[noreturn]] void call(const char* what, const std::vector<int>& members) {
    int self = 0;
    MPI_Comm_rank(comm_, &self);
    heard_.insert(self);
    for (const int member : members) {
      MPI_Request request;
      if (member != self &&
          MPI_Isend(nullptr, 0, MPI_BYTE, member, 0, comm_, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
    }
    const Clock::time_point end = Clock::now() + milliseconds(1000);
    while (Clock::now() < end) {
      while (hear()) {
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::vector<int> missing;
    for (const int member : members)
      if (!heard_.contains(member)) missing.push_back(member);
    if (missing.empty())
      throw DeviceError(fmt::format(
          "{}: all {} ranks have waited for longer than {} s: they do not call the same functions, "
          "or the connection is lost",
          what, members.size(), timeout_));
    throw DeviceError(fmt::format(
        "{}: rank {} did not come within {} s and does not answer: it hangs or is gone "
        "(TENON_RANK_TIMEOUT sets the seconds)",
        what, fmt::join(missing, ", "), timeout_));
  }

  MPI_Comm comm_;
  const double timeout_;
  std::set<int> heard_;
};

// What all groups of a session share.
struct Shared {
  Shared(MPI_Comm comm, double timeout_seconds)
      : roll(comm, timeout_seconds), progress(roll.comm()) {}

  RollCall roll;
  Progress progress;
  Clock::duration waited{};  // by the thread that uses the groups
};

class MpiTransfer final : public Transfer {
 public:
  MpiTransfer(const char* what, std::shared_ptr<Shared> shared, const std::vector<int>& members,
              std::size_t bytes)
      : what_(what),
        shared_(std::move(shared)),
        members_(members),
        in_background_(bytes >= kLeastInBackground) {
    if (in_background_) shared_->progress.begin();
  }
  ~MpiTransfer() override {
    leave_background();
    const auto calling = shared_->progress.calls();
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
  }

  // MPI counts elements in an int: sets the type so that the count of `bytes` fits.
  int count_of(std::size_t bytes) {
    constexpr std::size_t kUnit = 4096;
    if (bytes <= std::numeric_limits<int>::max()) return static_cast<int>(bytes);
    if (bytes % kUnit != 0 || bytes / kUnit > std::numeric_limits<int>::max())
      throw InvalidArgument(fmt::format(
          "{}: {} bytes to a rank; above 2 GiB they must be a multiple of {}", what_, bytes,
          kUnit));
    MPI_Type_contiguous(static_cast<int>(kUnit), MPI_BYTE, &type_);
    check(MPI_Type_commit(&type_), what_);
    return static_cast<int>(bytes / kUnit);
  }
  MPI_Datatype type() const { return type_; }
  MPI_Request* request() { return &request_; }
  const char* what() const { return what_; }

  bool test() override {
    const auto calling = shared_->progress.calls();
    int done = 0;
    check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), what_);
    return done != 0;
  }

  // Polls without a pause at first, then every 50 us, because ranks may share a processor.
  void wait() override {
    constexpr int kBusyLooks = 200;
    constexpr milliseconds kBetweenRollCalls(100);
    const Clock::time_point start = Clock::now();
    Clock::time_point next = start + kBetweenRollCalls;
    leave_background();
    for (int looks = 1; !test(); ++looks) {
      if (looks < kBusyLooks) continue;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (Clock::now() < next) continue;
      const auto calling = shared_->progress.calls();
      shared_->roll.look(what_, members_, start);
      next += kBetweenRollCalls;
    }
    shared_->waited += Clock::now() - start;
  }

 private:
  static constexpr std::size_t kLeastInBackground = 4096;

  void leave_background() {
    if (std::exchange(in_background_, false)) shared_->progress.end();
  }

  const char* const what_;
  const std::shared_ptr<Shared> shared_;
  const std::vector<int> members_;
  MPI_Datatype type_ = MPI_BYTE;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool in_background_;
};

int rank_in(MPI_Comm comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}
int size_of(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

class MpiGroup final : public ProcessGroup {
 public:
  // Owns the communicator. Requires: no other thread calls MPI meanwhile.
  MpiGroup(MPI_Comm comm, std::shared_ptr<Shared> shared)
      : ProcessGroup(rank_in(comm), size_of(comm)), comm_(comm), shared_(std::move(shared)) {
    MPI_Group mine, world;
    MPI_Comm_group(comm_, &mine);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    std::vector<int> own;
    for (int i = 0; i < size(); ++i) own.push_back(i);
    members_.resize(own.size());
    check(MPI_Group_translate_ranks(mine, size(), own.data(), world, members_.data()), "group");
    MPI_Group_free(&mine);
    MPI_Group_free(&world);
  }
  ~MpiGroup() override {
    const auto calling = shared_->progress.calls();
    MPI_Comm_free(&comm_);
  }

  double waited_seconds() const override { return duration<double>(shared_->waited).count(); }

  std::shared_ptr<ProcessGroup> split(int color, int key) override {
    const auto calling = shared_->progress.calls();
    MPI_Comm part;
    check(MPI_Comm_split(comm_, color, key, &part), "split");
    return std::make_shared<MpiGroup>(part, shared_);
  }

 private:
  template <typename Start>
  std::unique_ptr<Transfer> start(const char* what, std::size_t bytes, Start&& call) {
    auto transfer = std::make_unique<MpiTransfer>(what, shared_, members_, bytes);
    const auto calling = shared_->progress.calls();
    const int count = transfer->count_of(bytes);
    check(call(count, transfer->type(), transfer->request()), what);
    return transfer;
  }

  std::unique_ptr<Transfer> all_to_all_bytes(const void* in, void* out,
                                             std::size_t bytes) override {
    return start("all_to_all", bytes, [&](int count, MPI_Datatype type, MPI_Request* request) {
      return MPI_Ialltoall(in, count, type, out, count, type, comm_, request);
    });
  }
  std::unique_ptr<Transfer> all_gather_bytes(const void* in, void* out,
                                             std::size_t bytes) override {
    const void* const place = static_cast<char*>(out) + static_cast<std::size_t>(rank()) * bytes;
    return start("all_gather", bytes, [&](int count, MPI_Datatype type, MPI_Request* request) {
      return MPI_Iallgather(in == place ? MPI_IN_PLACE : in, count, type, out, count, type, comm_,
                            request);
    });
  }
  std::unique_ptr<Transfer> broadcast_bytes(void* data, std::size_t bytes, int root) override {
    return start("broadcast", bytes, [&](int count, MPI_Datatype type, MPI_Request* request) {
      return MPI_Ibcast(data, count, type, root, comm_, request);
    });
  }
  std::unique_ptr<Transfer> send_bytes(const void* data, std::size_t bytes, int to) override {
    return start("send", bytes, [&](int count, MPI_Datatype type, MPI_Request* request) {
      return MPI_Isend(data, count, type, to, 0, comm_, request);
    });
  }
  std::unique_ptr<Transfer> receive_bytes(void* data, std::size_t bytes, int from) override {
    return start("receive", bytes, [&](int count, MPI_Datatype type, MPI_Request* request) {
      return MPI_Irecv(data, count, type, from, 0, comm_, request);
    });
  }

  MPI_Comm comm_;
  const std::shared_ptr<Shared> shared_;
  std::vector<int> members_;  // ranks of MPI_COMM_WORLD
};

MPI_Comm copy_of_world() {
  MPI_Comm comm;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

// Until all ranks are here. MPI_Finalize, too, waits for them, and keeps a processor busy.
void wait_for_all() {
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; done == 0 && MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS;)
    std::this_thread::sleep_for(milliseconds(1));
}

}  // namespace

MpiSession::MpiSession(double timeout_seconds) : exceptions_(std::uncaught_exceptions()) {
  if (!(timeout_seconds > 0) || std::isinf(timeout_seconds))
    throw InvalidArgument(
        fmt::format("a timeout of {} s between ranks; it must be above 0", timeout_seconds));
  // Open MPI's TCP puts large messages in pieces that wait for each other: a third of a 100 Mbit/s
  // link was unused. Bit 0 is for sends alone. Another value of the variable stays.
  ::setenv("OMPI_MCA_btl_tcp_flags", "1", 0);
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
    throw DeviceError("MPI does not start");
  if (provided < MPI_THREAD_SERIALIZED)
    throw DeviceError(fmt::format("{} was built without support for threads, which Tenon needs: "
                                  "use a build that has MPI_THREAD_SERIALIZED",
                                  library()));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  world_ = std::make_shared<MpiGroup>(
      copy_of_world(), std::make_shared<Shared>(copy_of_world(), timeout_seconds));
}

// Note [Apart at the end]. In MPI_Finalize of MPICH over UCX and TCP a rank asks the others to
// acknowledge what it sent. Then it waits for the launcher and no longer answers. Ranks that are
// still in a barrier answer it, and get no answer when they ask later. So all ranks leave the
// barrier, and call MPI no more, before the first one asks.
MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() > exceptions_) return;
  const bool is_mpich = library().starts_with("MPICH");
  world_.reset();
  wait_for_all();
  if (is_mpich) std::this_thread::sleep_for(milliseconds(500));
  MPI_Finalize();
}

bool MpiSession::is_underway() {
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  return started != 0 && ended == 0;
}

double MpiSession::timeout_from_environment() {
  constexpr double kDefault = 6;
  return parse_real(environment_value("TENON_RANK_TIMEOUT")).value_or(kDefault);
}

std::string MpiSession::library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string all = text;  // of MPICH: "MPICH Version:\t4.0.2\nMPICH Release date: ..."
  all = all.substr(0, all.find_first_of("\n,"));
  std::replace(all.begin(), all.end(), '\t', ' ');
  return all;
}

void MpiSession::abort(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::abort();
}

}  // namespace tenon::distributed
