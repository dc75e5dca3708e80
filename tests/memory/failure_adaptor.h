// Lets requests fail on demand, to see who minds.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "tenon/base/random.h"
#include "tenon/base/spin_lock.h"
#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {

// Which requests fail. A request that meets any of the conditions does.
struct FailurePlan {
  std::uint64_t nth = 0;    // the n-th request from now (1 is the next); 0: none
  std::uint64_t every = 0;  // each n-th request; 0: none
  double rate = 0;          // each with this probability, by the seed
  std::uint64_t seed = 0;
  std::uint64_t above_bytes = std::numeric_limits<std::uint64_t>::max();  // larger ones
};

// Requests chosen by the plan throw OutOfMemory. Its advice says that the failure was asked for and
// which request it was. The upstream does not receive them. Requests of zero bytes neither fail nor
// count. The same plan and requests fail alike in every run. Thread-safe. O(1) beside the upstream.
template <typename Base>
class FailureAdaptor final : public Adaptor<Base> {
 public:
  explicit FailureAdaptor(std::type_identity_t<Base>& upstream, const FailurePlan& plan = {})
      : Adaptor<Base>(upstream), plan_(plan), random_(plan.seed) {}

  // Replaces the plan; counting and random numbers start anew.
  void set_plan(const FailurePlan& plan) {
    const std::lock_guard guard(lock_);
    plan_ = plan;
    random_ = Random(plan.seed);
    requests_ = 0;
  }
  // Since the plan was set.
  std::uint64_t requests() const {
    const std::lock_guard guard(lock_);
    return requests_;
  }
  // Ever.
  std::uint64_t failures() const {
    const std::lock_guard guard(lock_);
    return failures_;
  }

 protected:
  std::string adaptor_name() const override { return "failure"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    if (const std::uint64_t number = size_bytes > 0 ? number_if_struck(size_bytes) : 0) {
      OutOfMemoryDetails details;
      details.advice = "the failure of request " + std::to_string(number) + " was asked for";
      this->refuse(size_bytes, stream, std::move(details));
    }
    return this->wrap(this->from_upstream(size_bytes, stream), size_bytes, stream);
  }

 private:
  // Of a request that is to fail; else 0.
  std::uint64_t number_if_struck(std::size_t size_bytes) {
    const std::lock_guard guard(lock_);
    const std::uint64_t number = ++requests_;
    const bool struck = number == plan_.nth || (plan_.every != 0 && number % plan_.every == 0) ||
                        size_bytes > plan_.above_bytes ||
                        (plan_.rate > 0 && random_.chance(plan_.rate));
    failures_ += struck ? 1 : 0;
    return struck ? number : 0;
  }

  mutable SpinLock lock_;
  FailurePlan plan_;
  Random random_;
  std::uint64_t requests_ = 0;
  std::uint64_t failures_ = 0;
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A, typename... Plan>
FailureAdaptor(A&, Plan&&...) -> FailureAdaptor<AdaptorBase<A>>;

}  // namespace tenon
