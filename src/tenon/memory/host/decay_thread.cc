#include "tenon/memory/host/decay_thread.h"

#include <new>
#include <system_error>

namespace tenon::host {

DecayThread::~DecayThread() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

void DecayThread::wake_slowly() {
  const std::lock_guard lock(state_->mutex);
  if (state_->stop || awake_.exchange(true)) return;
  if (state_->thread.joinable()) {
    state_->changed.notify_all();
    return;
  }
  try {
    state_->thread = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    awake_ = false;  // the next caller tries again
  } catch (const std::bad_alloc&) {
    awake_ = false;
  }
}

void DecayThread::run() {
  std::unique_lock lock(state_->mutex);
  const auto stopped = [this] { return state_->stop; };
  while (!state_->changed.wait_for(lock, period_, stopped)) {
    // Asleep before the tick: what begins while it looks around wakes the thread again.
    awake_ = false;
    lock.unlock();
    const bool more = tick_();
    lock.lock();
    if (more) awake_ = true;
    state_->changed.wait(lock, [this] { return state_->stop || awake_; });
  }
}

// Neither the thread nor its waiters exist in the child. Their state is left alone: a mutex that
// one held cannot be destroyed, nor a thread joined that is not there.
void DecayThread::after_fork_in_child() {
  state_.release();
  state_ = std::make_unique<State>();
  awake_ = false;
}

}  // namespace tenon::host
