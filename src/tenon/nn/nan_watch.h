// Which operator made the first NaN. Each guard watches its own thread. Nothing throws except by
// lack of memory; the operators throw what they always throw. O(elements).
#pragma once

#include <optional>
#include <string>

namespace tenon::nn {

// Where the first NaN was made.
struct NanFinding {
  std::string op;     // "log"
  std::string layer;  // the module's path (Module::set_path), or empty
  std::string phase;  // of the memory tag, or empty
  std::string shape;  // of the result, "[64, 10]"
  bool from_infinity = false;  // an operand was infinite
  // "log in model.3 (forward) made the first NaN, in a result of shape [64, 10]".
  std::string text() const;
};

// Checks every operator that this thread calls until the guard ends. Keeps the first one whose
// result has a NaN although no operand had one. Derivatives that are no calls of operators are not
// seen: autograd::AnomalyMode names those. Slow: every operand is read. Meant for running a step
// again that went wrong.
class NanWatch {
 public:
  NanWatch();
  ~NanWatch();
  NanWatch(const NanWatch&) = delete;
  NanWatch& operator=(const NanWatch&) = delete;

  // The first so far, if there is one.
  const std::optional<NanFinding>& finding() const;

 private:
  struct Inner;
  Inner* const inner_;
};

}  // namespace tenon::nn
