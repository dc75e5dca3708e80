#include "cuda_stand_in/world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "cuda_stand_in/stand_in.h"

namespace tenon::stand_in {

World& world() {
  static auto& instance = *[] {
    auto* made = new World();
    const char* setup = std::getenv("TENON_CUDA_STAND_IN");
    made->reset(setup != nullptr ? setup : "");
    return made;
  }();
  return instance;
}

std::vector<ContextState*>& context_stack() {
  thread_local std::vector<ContextState*> stack;
  return stack;
}
ContextState* current_context() {
  return context_stack().empty() ? nullptr : context_stack().back();
}
int& thread_capture_mode() {
  thread_local int mode = cu::kCaptureModeGlobal;
  return mode;
}

// ------------------------------------------------------------------------------------------------
// Calls

Result World::scripted_failure(const char* function) {
  const std::uint64_t number = ++calls[function];
  ++all_calls;
  if (fail_in > 0 && --fail_in == 0) return fail_with;
  const auto scripted = failures.find({function, number});
  if (scripted == failures.end()) return cu::kSuccess;
  const Result result = scripted->second;
  failures.erase(scripted);
  return result;
}

Result World::enter(const char* function, bool needs_context) {
  if (lose_after > 0 && --lose_after == 0) lost = cu::kErrorLaunchFailed;
  if (const Result scripted = scripted_failure(function); scripted != cu::kSuccess) return scripted;
  if (!initialised) return fault(cu::kErrorNotInitialized, fmt::format("{}: no cuInit", function));
  if (lost != cu::kSuccess) return lost;
  if (needs_context && current_context() == nullptr)
    return fault(cu::kErrorInvalidContext,
                 fmt::format("{}: the thread has no current context", function));
  make_progress();
  return lost;
}

Result World::fault(Result result, const std::string& text) {
  faults.push_back(text);
  return result;
}

Result World::invalidate(GraphState& graph, Result result, const std::string& text) {
  graph.invalidated = true;
  return fault(result, text);
}

Result World::forbid_while_capturing(const char* function) {
  if (thread_capture_mode() == cu::kCaptureModeRelaxed) return cu::kSuccess;
  for (StreamState* stream : all_streams()) {
    GraphState* graph = stream->capture.get();
    if (graph == nullptr || graph->mode == cu::kCaptureModeRelaxed) continue;
    const bool here = graph->thread == ::gettid();
    if (!here && (graph->mode == cu::kCaptureModeThreadLocal ||
                  thread_capture_mode() == cu::kCaptureModeThreadLocal))
      continue;
    return invalidate(*graph, cu::kErrorStreamCaptureUnsupported,
                      fmt::format("{} while a graph is captured", function));
  }
  return cu::kSuccess;
}

Result World::forbid_with_any_capture(const char* function) {
  for (StreamState* stream : all_streams())
    if (stream->capture != nullptr && stream->device == current_context()->device)
      return invalidate(*stream->capture, cu::kErrorStreamCaptureUnsupported,
                        fmt::format("{} while a stream of the context captures", function));
  return cu::kSuccess;
}

Result World::forbid_implicit_capture(StreamState* stream, const char* function) {
  if (stream != contexts[static_cast<std::size_t>(stream->device)].default_stream.get())
    return cu::kSuccess;
  for (StreamState* other : blocking_streams(stream->device))
    if (other->capture != nullptr)
      return invalidate(*other->capture, cu::kErrorStreamCaptureImplicit,
                        fmt::format("{} on the default stream, which a capturing stream waits for",
                                    function));
  return cu::kSuccess;
}

// ------------------------------------------------------------------------------------------------
// Memory

int make_file(std::uint64_t size) {
  const int file = ::memfd_create("tenon-stand-in", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(size)) != 0) std::abort();
  return file;
}

void* map_file(int file, std::uint64_t size, void* at) {
  void* base = ::mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), file, 0);
  if (base == MAP_FAILED) std::abort();
  return base;
}

bool World::has_room(int device, std::uint64_t size) const {
  const auto i = static_cast<std::size_t>(device);
  const std::uint64_t held = used[i] + taken[i];
  return held <= setup.capacity && size <= setup.capacity - held;
}

bool World::is_unknown(std::uint64_t address) const {
  const auto inside = [address](const auto& regions, auto&& size_of) {
    auto it = regions.upper_bound(address);
    if (it == regions.begin()) return false;
    --it;
    return address - it->first < size_of(it->second);
  };
  return !inside(pieces, [](const Piece& p) { return p.size; }) &&
         !inside(ranges, [](std::uint64_t size) { return size; });
}

bool World::reachable(int device, std::uint64_t address, std::uint64_t size,
                      std::string* why) const {
  const auto refuse = [&](std::uint64_t at, const char* reason) {
    *why = fmt::format("{:#x}: {}", at, reason);
    return false;
  };
  for (std::uint64_t at = address; at < address + size;) {
    if (auto piece = pieces.upper_bound(at); piece != pieces.begin()) {
      --piece;
      if (at - piece->first < piece->second.size) {
        const Piece& p = piece->second;
        const bool on_device = p.kind == Piece::Kind::kDevice || p.kind == Piece::Kind::kImported;
        const auto& mine = contexts[static_cast<std::size_t>(device)];
        if (on_device && p.device != device && !mine.peers.contains(p.device))
          return refuse(at, "another device's, without peer access");
        at = piece->first + p.size;
        continue;
      }
    }
    auto mapping = mappings.upper_bound(at);
    if (mapping == mappings.begin()) return refuse(at, "nothing is there");
    --mapping;
    if (at - mapping->first >= mapping->second.size) return refuse(at, "nothing is mapped there");
    if (!mapping->second.devices.contains(device))
      return refuse(at, "mapped, but without access");
    at = mapping->first + mapping->second.size;
  }
  return true;
}

void World::drop_handle_if_unused(cu::Allocation id) {
  const auto it = handles.find(id);
  if (it == handles.end() || it->second.references > 0 || it->second.mappings > 0) return;
  if (!it->second.imported) used[static_cast<std::size_t>(it->second.device)] -= it->second.size;
  ::close(it->second.file);
  handles.erase(it);
}

// ------------------------------------------------------------------------------------------------
// Work

std::vector<StreamState*> World::all_streams() {
  std::vector<StreamState*> all;
  for (ContextState& context : contexts) all.push_back(context.default_stream.get());
  for (const auto& [handle, stream] : streams) all.push_back(stream.get());
  for (const auto& stream : retired)
    if (stream->done < stream->queued) all.push_back(stream.get());
  return all;
}

std::vector<StreamState*> World::blocking_streams(int device) {
  std::vector<StreamState*> blocking;
  for (StreamState* stream : all_streams())
    if (stream->blocking && stream->device == device &&
        stream != contexts[static_cast<std::size_t>(device)].default_stream.get())
      blocking.push_back(stream);
  return blocking;
}

StreamState* World::stream_of(cu::Stream stream) {
  const auto value = reinterpret_cast<std::uintptr_t>(stream);
  if (value <= cu::kStreamLegacy) return current_context()->default_stream.get();
  const auto known = streams.find(stream);
  return known == streams.end() ? nullptr : known->second.get();
}

void World::enqueue(StreamState* stream, std::function<void()> run) {
  if (stream->capture != nullptr) {
    stream->capture->nodes.push_back(std::move(run));
    return;
  }
  Operation operation;
  operation.run = std::move(run);
  StreamState* const standard =
      contexts[static_cast<std::size_t>(stream->device)].default_stream.get();
  if (stream == standard) {
    for (StreamState* other : blocking_streams(stream->device))
      operation.after.push_back({other, other->queued});
  } else if (stream->blocking) {
    operation.after.push_back({standard, standard->queued});
  }
  stream->work.push_back(std::move(operation));
  ++stream->queued;
  if (!setup.lazy) run_until(stream, stream->queued);
}

void World::run_until(StreamState* stream, std::uint64_t number) {
  while (stream->done < number) {
    const Operation operation = std::move(stream->work.front());
    stream->work.pop_front();
    for (const Point& point : operation.after) run_until(point.stream, point.number);
    operation.run();
    ++stream->done;
  }
}

void World::run_everything(int device) {
  for (StreamState* stream : all_streams())
    if (stream->device == device) run_until(stream, stream->queued);
}

// Between calls the device works on: now and then, on whichever stream.
void World::make_progress() {
  if (!setup.lazy || random() % 4 != 0) return;
  std::vector<StreamState*> busy;
  for (StreamState* stream : all_streams())
    if (stream->done < stream->queued) busy.push_back(stream);
  if (busy.empty()) return;
  StreamState* stream = busy[random() % busy.size()];
  run_until(stream, stream->done + 1);
}

// Touching what may not be touched loses the device, as on a real one.
void World::touch(int device, std::uint64_t address, std::uint64_t size, const char* what,
                  const std::function<void()>& act) {
  std::string why;
  if (lost != cu::kSuccess) return;
  if (!reachable(device, address, size, &why)) {
    lost = cu::kErrorIllegalAddress;
    faults.push_back(fmt::format("{} of {:#x}, {} bytes: {}", what, address, size, why));
    return;
  }
  act();
}

// ------------------------------------------------------------------------------------------------
// Setting up

namespace {

void give_back_everything(World& w) {
  for (const auto& [address, piece] : w.pieces) {
    ::munmap(reinterpret_cast<void*>(address), piece.size);
    if (piece.file >= 0) ::close(piece.file);
  }
  for (const auto& [address, size] : w.ranges) ::munmap(reinterpret_cast<void*>(address), size);
  for (const auto& [id, handle] : w.handles) ::close(handle.file);
  for (EventState* event : w.events) delete event;
  for (std::string* module : w.modules) delete module;
}

void apply(World& w, const std::string& key, const std::string& value) {
  Setup& setup = w.setup;
  const auto number = [&] { return std::strtoull(value.c_str(), nullptr, 10); };
  if (key == "devices") setup.devices = static_cast<int>(number());
  if (key == "version") setup.version = static_cast<int>(number());
  if (key == "capacity") setup.capacity = number();
  if (key == "lazy") setup.lazy = number() != 0;
  if (key == "seed") setup.seed = number();
  if (key == "peers") setup.peers = number() != 0;
  if (key == "virtual_memory") setup.virtual_memory = number() != 0;
  if (key == "rdma") setup.rdma = number() != 0;
  if (key == "lost") w.lose_after = number();
  if (key == "fail") {  // function:nth:result
    std::istringstream parts(value);
    std::string function, nth, result;
    std::getline(parts, function, ':');
    std::getline(parts, nth, ':');
    std::getline(parts, result, ':');
    w.failures[{function, std::strtoull(nth.c_str(), nullptr, 10)}] = std::atoi(result.c_str());
  }
}

}  // namespace

void World::reset(const std::string& text) {
  give_back_everything(*this);
  setup = Setup();
  initialised = false;
  lost = cu::kSuccess;
  lose_after = 0;
  fail_in = 0;
  all_calls = 0;
  calls.clear();
  failures.clear();
  faults.clear();
  pieces.clear();
  ranges.clear();
  handles.clear();
  mappings.clear();
  streams.clear();
  retired.clear();
  free_handles.clear();
  next_stream = 1;
  events.clear();
  graphs.clear();
  executables.clear();
  modules.clear();
  functions.clear();
  pinned = 0;
  rdma_bytes = 0;
  std::istringstream settings(text);
  for (std::string setting; std::getline(settings, setting, ',');) {
    const std::size_t equals = setting.find('=');
    if (equals != std::string::npos)
      apply(*this, setting.substr(0, equals), setting.substr(equals + 1));
  }
  random.seed(setup.seed);
  const auto count = static_cast<std::size_t>(setup.devices);
  contexts = std::vector<ContextState>(count);
  for (std::size_t i = 0; i < count; ++i)
    contexts[i].device = contexts[i].default_stream->device = static_cast<int>(i);
  used.assign(count, 0);
  taken.assign(count, 0);
}

}  // namespace tenon::stand_in

// ------------------------------------------------------------------------------------------------
// The controls

using tenon::stand_in::world;

namespace {
// Keeps what a control returned until the next one is called.
const char* keep(std::string text) {
  static std::string kept;
  kept = std::move(text);
  return kept.c_str();
}
}  // namespace

extern "C" {

void stand_in_reset(const char* setup) {
  const std::lock_guard lock(world().mutex);
  world().reset(setup);
  tenon::stand_in::context_stack().clear();
}

void stand_in_fail(const char* function, std::uint64_t nth, int result) {
  const std::lock_guard lock(world().mutex);
  world().failures[{function, world().calls[function] + nth}] = result;
}

void stand_in_fail_any(std::uint64_t nth, int result) {
  const std::lock_guard lock(world().mutex);
  world().fail_in = nth;
  world().fail_with = result;
}

std::uint64_t stand_in_rdma_bytes() {
  const std::lock_guard lock(world().mutex);
  return world().rdma_bytes;
}

std::uint64_t stand_in_all_calls() {
  const std::lock_guard lock(world().mutex);
  return world().all_calls;
}

void stand_in_end() {
  const std::lock_guard lock(world().mutex);
  world().lost = tenon::cu::kErrorDeinitialized;
}

void stand_in_lose_device(std::uint64_t calls) {
  const std::lock_guard lock(world().mutex);
  world().lose_after = calls;
}

void stand_in_take(int device, std::uint64_t bytes) {
  const std::lock_guard lock(world().mutex);
  world().taken.at(static_cast<std::size_t>(device)) = bytes;
}

std::uint64_t stand_in_used(int device) {
  const std::lock_guard lock(world().mutex);
  return world().used.at(static_cast<std::size_t>(device));
}

std::uint64_t stand_in_calls(const char* function) {
  const std::lock_guard lock(world().mutex);
  return world().calls[function];
}

std::uint64_t stand_in_pinned() {
  const std::lock_guard lock(world().mutex);
  return world().pinned;
}

std::uint64_t stand_in_pending() {
  const std::lock_guard lock(world().mutex);
  std::uint64_t pending = 0;
  for (const auto* stream : world().all_streams()) pending += stream->queued - stream->done;
  return pending;
}

const char* stand_in_faults() {
  const std::lock_guard lock(world().mutex);
  std::string text;
  for (const std::string& fault : world().faults) text += fault + "\n";
  return keep(text);
}

const char* stand_in_leaks() {
  const std::lock_guard lock(world().mutex);
  const auto& w = world();
  std::string text;
  for (const auto& [address, piece] : w.pieces)
    text += fmt::format("memory at {:#x}, {} bytes\n", address, piece.size);
  for (const auto& [address, mapping] : w.mappings)
    text += fmt::format("mapping at {:#x}, {} bytes\n", address, mapping.size);
  for (const auto& [id, handle] : w.handles)
    text += fmt::format("handle {:#x}, {} bytes\n", id, handle.size);
  for (const auto& [address, size] : w.ranges)
    text += fmt::format("addresses at {:#x}, {} bytes\n", address, size);
  if (!w.streams.empty()) text += fmt::format("{} streams\n", w.streams.size());
  if (!w.events.empty()) text += fmt::format("{} events\n", w.events.size());
  for (const auto& context : w.contexts)
    if (context.retained != 0) text += fmt::format("context of device {}\n", context.device);
  return keep(text);
}

}  // extern "C"
