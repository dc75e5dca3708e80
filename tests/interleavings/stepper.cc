#include "interleavings/stepper.h"

#include <algorithm>

namespace tenon::stepped {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace

Location::Location(Value initial) : value(initial), number(++Stepper::current().locations_) {}

Stepper::Stepper(std::size_t scenario_bytes, std::size_t threads)
    : scenario_bytes_((scenario_bytes + 7) / 8 * 8),
      scenario_(new (std::align_val_t{64}) char[scenario_bytes_]),
      threads_(threads) {
  for (Thread& thread : threads_) thread.stack.reset(new char[kStackBytes]);
  current_ = this;
}

void Stepper::explore_all() {
  do {
    ++result_.executions;
    execute();
  } while (result_.failure.empty() && next_choices());
  result_.states = seen_.size();
}

// The last choice that has an option left takes it; those behind it are made anew.
bool Stepper::next_choices() {
  while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().options)
    choices_.pop_back();
  if (choices_.empty()) return false;
  ++choices_.back().taken;
  return true;
}

void Stepper::execute() {
  std::memset(scenario_.get(), 0, scenario_bytes_);
  locations_ = 0;
  depth_ = 0;
  construct_(scenario_.get());
  for (Thread& thread : threads_) {
    thread.finished = thread.waits = false;
    thread.history = 0;
    thread.last = nullptr;
    thread.buffer.clear();
    ::getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStackBytes;
    thread.context.uc_link = nullptr;
    ::makecontext(&thread.context, fiber, 0);
  }
  if (const std::size_t first = pick(); first != kMain) switch_to(first);
  const bool complete = std::all_of(threads_.begin(), threads_.end(), [](const Thread& thread) {
    return thread.finished && thread.buffer.empty();
  });
  if (complete && result_.failure.empty()) finish_(scenario_.get());
}

void Stepper::fiber() {
  Stepper& stepper = current();
  stepper.run_(stepper.scenario_.get(), stepper.running_);
  stepper.threads_[stepper.running_].finished = true;
  stepper.switch_to(stepper.pick());  // never comes back
}

void Stepper::switch_to(std::size_t thread) {
  ucontext_t& from = is_inside() ? threads_[running_].context : main_;
  running_ = thread;
  ::swapcontext(&from, thread == kMain ? &main_ : &threads_[thread].context);
}

void Stepper::step() {
  if (!is_inside()) return;
  const std::size_t self = running_;
  note(0, 0);  // it has come here
  if (const std::size_t next = pick(); next != self) switch_to(next);
  threads_[self].waits = false;
}

const std::vector<Stepper::Action>& Stepper::possible_actions() {
  actions_.clear();
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    const Thread& thread = threads_[i];
    if (!thread.finished && (!thread.waits || visible(thread, *thread.last) != thread.last_value))
      actions_.push_back({i, kRun});
    for (std::size_t store = 0; store < thread.buffer.size(); ++store)
      if (may_drain(thread, store)) actions_.push_back({i, store});
  }
  return actions_;
}

std::size_t Stepper::pick() {
  for (;;) {
    const std::vector<Action>& actions = possible_actions();
    if (actions.empty()) {
      const bool stuck = !std::all_of(threads_.begin(), threads_.end(),
                                      [](const Thread& thread) { return thread.finished; });
      if (stuck) result_.failure = "all threads wait for ever";
      return kMain;
    }
    std::size_t taken = 0;
    if (actions.size() > 1) {
      if (depth_ == choices_.size()) {
        if (!seen_.insert(state()).second) return kMain;
        choices_.push_back({0, actions.size()});
      }
      taken = choices_[depth_++].taken;
    }
    const Action action = actions[taken];
    if (action.store == kRun) return action.thread;
    drain(threads_[action.thread], action.store);
  }
}

bool Stepper::may_drain(const Thread& thread, std::size_t store) const {
  const Store& late = thread.buffer[store];
  return std::none_of(thread.buffer.begin(),
                      thread.buffer.begin() + static_cast<std::ptrdiff_t>(store),
                      [&](const Store& early) { return late.release || early.at == late.at; });
}

void Stepper::drain(Thread& thread, std::size_t store) {
  thread.buffer[store].at->value = thread.buffer[store].value;
  thread.buffer.erase(thread.buffer.begin() + static_cast<std::ptrdiff_t>(store));
}

void Stepper::flush(const Location* at) {
  std::vector<Store>& buffer = threads_[running_].buffer;
  std::erase_if(buffer, [&](const Store& store) {
    if (at != nullptr && store.at != at) return false;
    store.at->value = store.value;
    return true;
  });
}

Value Stepper::visible(const Thread& thread, const Location& at) const {
  for (std::size_t i = thread.buffer.size(); i-- > 0;)
    if (thread.buffer[i].at == &at) return thread.buffer[i].value;
  return at.value;
}

std::uint64_t Stepper::state() const {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < scenario_bytes_; i += sizeof(Value)) {
    Value word = 0;
    std::memcpy(&word, scenario_.get() + i, sizeof word);
    hash = mixed(hash, word);
  }
  for (const Thread& thread : threads_) {
    hash = mixed(hash, thread.history);
    hash = mixed(hash, (thread.buffer.size() << 2) + (thread.finished ? 2 : 0) + thread.waits);
    for (const Store& store : thread.buffer) {
      hash = mixed(hash, 2 * store.at->number + store.release);
      hash = mixed(hash, store.value);
    }
  }
  return hash;
}

void Stepper::note(std::uint64_t what, Value value) {
  if (!is_inside()) return;
  std::uint64_t& history = threads_[running_].history;
  history = mixed(mixed(history, what + 1), value);
}

Value Stepper::load(Location& at) {
  step();
  if (!is_inside()) return at.value;
  Thread& thread = threads_[running_];
  thread.last = &at;
  thread.last_value = visible(thread, at);
  note(at.number, thread.last_value);
  return thread.last_value;
}

void Stepper::store(Location& at, Value value, std::memory_order order) {
  step();
  if (!is_inside()) {
    at.value = value;
    return;
  }
  note(at.number, value);
  threads_[running_].buffer.push_back({&at, value, order != std::memory_order_relaxed});
  if (order == std::memory_order_seq_cst) flush(nullptr);
}

void Stepper::barrier_on_every_thread() {
  step();
  note(1, 0);
  for (Thread& thread : threads_)
    while (!thread.buffer.empty()) drain(thread, 0);
}

void Stepper::wait() {
  threads_[running_].waits = true;
  step();
}

void Stepper::fail(const std::string& what) {
  result_.failure = what;
  if (is_inside()) switch_to(kMain);
}

}  // namespace tenon::stepped
