// The stand-in driver's state.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tenon/device/cuda/driver_api.h"

namespace tenon::stand_in {

using cu::Result;

constexpr std::uint64_t kGranularity = std::uint64_t{2} << 20;
constexpr std::uint64_t kHostPage = 4096;

struct StreamState;

// A point in a stream's work: everything up to the n-th operation.
struct Point {
  StreamState* stream = nullptr;
  std::uint64_t number = 0;
};

struct Operation {
  std::vector<Point> after;  // what must have run before
  std::function<void()> run;
};

// A graph under capture, or captured. Its operations run one after another, as captured.
struct GraphState {
  std::uint64_t id = 0;
  std::vector<std::function<void()>> nodes;
  StreamState* origin = nullptr;
  int mode = 0;
  pid_t thread = 0;
  bool invalidated = false;
  bool over = false;  // the capture has ended
};

struct StreamState {
  int device = 0;
  std::uint64_t id = 0;  // cuStreamGetId
  bool blocking = true;  // synchronises with the default stream
  std::uint64_t queued = 0;
  std::uint64_t done = 0;
  std::deque<Operation> work;
  std::shared_ptr<GraphState> capture;
};

struct EventState {
  int device = 0;
  bool recorded = false;
  Point point;
  std::shared_ptr<GraphState> capture;  // recorded while capturing
};

struct ContextState {
  int device = 0;
  int retained = 0;
  std::set<int> peers;  // devices whose memory it may reach
  std::unique_ptr<StreamState> default_stream = std::make_unique<StreamState>();
};

struct Piece {  // of cuMemAlloc and the like
  enum class Kind { kDevice, kManaged, kHost, kImported } kind = Kind::kDevice;
  std::uint64_t size = 0;
  int device = 0;
  int file = -1;
};

struct Handle {
  std::uint64_t size = 0;
  int device = 0;
  int file = -1;
  int references = 1;  // of the program; the memory goes with the last mapping
  int mappings = 0;
  bool exportable = false;
  bool imported = false;
};

struct Mapping {
  std::uint64_t size = 0;
  cu::Allocation handle = 0;
  std::set<int> devices;  // that have access
};

struct Setup {
  int devices = 1;
  int version = 13000;
  std::uint64_t capacity = std::uint64_t{8} << 30;
  bool lazy = false;  // work runs late and in a random order
  std::uint64_t seed = 1;
  bool peers = true;
  bool virtual_memory = true;
  bool rdma = true;  // of memory that is mapped, too
};

// All under `mutex`; the functions of the API take it.
struct World {
  std::recursive_mutex mutex;
  Setup setup;
  bool initialised = false;
  Result lost = cu::kSuccess;       // what every call returns once the device is lost
  std::uint64_t lose_after = 0;     // calls; 0: never
  std::uint64_t fail_in = 0;        // calls, whichever; 0: none fails
  Result fail_with = cu::kSuccess;
  std::uint64_t all_calls = 0;
  std::mt19937_64 random;

  std::map<std::string, std::uint64_t> calls;
  std::map<std::pair<std::string, std::uint64_t>, Result> failures;  // by number of the call
  std::vector<std::string> faults;

  std::vector<ContextState> contexts;
  std::vector<std::uint64_t> used, taken;
  std::uint64_t pinned = 0;
  std::uint64_t rdma_bytes = 0;  // created with gpuDirectRDMACapable

  std::map<std::uint64_t, Piece> pieces;     // by address
  std::map<std::uint64_t, std::uint64_t> ranges;  // address to size
  std::map<cu::Allocation, Handle> handles;
  std::map<std::uint64_t, Mapping> mappings;  // by address
  cu::Allocation next_handle = 0x1000;

  std::map<cu::Stream, std::unique_ptr<StreamState>> streams;  // created
  std::vector<std::unique_ptr<StreamState>> retired;  // destroyed; their work still runs
  std::vector<cu::Stream> free_handles;  // of destroyed streams: the next ones get them
  std::uint64_t next_stream = 1;  // the driver's number of it
  std::set<EventState*> events;    // owned
  std::map<cu::Graph, std::shared_ptr<GraphState>> graphs;
  std::map<cu::GraphExec, std::shared_ptr<GraphState>> executables;
  std::uint64_t next_graph = 1;
  std::set<std::string*> modules;  // owned: their text
  std::vector<std::unique_ptr<std::string>> functions;  // names

  // --- Calls. What a function must return before it does anything, or kSuccess.
  Result enter(const char* function, bool needs_context = true);
  Result fault(Result result, const std::string& text);
  // The scripted failure of this call, or kSuccess.
  Result scripted_failure(const char* function);
  // For calls that a graph capture does not allow in this thread's mode.
  Result forbid_while_capturing(const char* function);
  // For calls that conflict with every capture in the context, whatever the mode.
  Result forbid_with_any_capture(const char* function);
  // For work on the default stream, which a capture of a stream that waits for it would have to
  // take in.
  Result forbid_implicit_capture(StreamState* stream, const char* function);
  Result invalidate(GraphState& graph, Result result, const std::string& text);

  // --- Memory.
  bool has_room(int device, std::uint64_t size) const;
  // Whether the device may touch all of it; host memory that nobody knows counts as the program's.
  bool reachable(int device, std::uint64_t address, std::uint64_t size, std::string* why) const;
  bool is_unknown(std::uint64_t address) const;
  void drop_handle_if_unused(cu::Allocation handle);

  // --- Work.
  StreamState* stream_of(cu::Stream stream);  // null: no such stream
  void enqueue(StreamState* stream, std::function<void()> run);
  void run_until(StreamState* stream, std::uint64_t number);
  void run_everything(int device);
  void make_progress();
  void touch(int device, std::uint64_t address, std::uint64_t size, const char* what,
             const std::function<void()>& act);
  std::vector<StreamState*> all_streams();  // destroyed ones with work left, too
  std::vector<StreamState*> blocking_streams(int device);

  void reset(const std::string& text);
};

World& world();
ContextState* current_context();
std::vector<ContextState*>& context_stack();  // the calling thread's
int& thread_capture_mode();

// Memory with a file behind it, so that it can be mapped again.
int make_file(std::uint64_t size);
void* map_file(int file, std::uint64_t size, void* at);

// Runs a built-in kernel: params as cuLaunchKernel gets them. False: there is none of that name.
bool enqueue_kernel(const std::string& name, StreamState* stream, void** params);

}  // namespace tenon::stand_in

// Begins a function of the driver: w is the locked world. Returns what keeps the call from working.
#define STAND_IN_ENTER(name, ...)                                                           \
  tenon::stand_in::World& w = tenon::stand_in::world();                                     \
  const std::lock_guard lock(w.mutex);                                                      \
  const tenon::cu::Result entered = w.enter(name __VA_OPT__(, ) __VA_ARGS__);               \
  if (entered != tenon::cu::kSuccess) return entered
