// Advice as JSON for programs and as words for people: what `tenon advise` prints. Thread-safe:
// pure functions of their arguments. The only error: no memory (std::bad_alloc). O(programs).
#pragma once

#include <optional>
#include <string>

#include "tenon/lab/advice/advice.h"

namespace tenon {

// What to do, in a sentence or two.
std::string advice_verdict(const Advice& advice);

// `seconds`: how long the search took; not printed where there are none.
std::string advice_text(const Advice& advice, std::optional<double> seconds = std::nullopt);
// One object; its keys are in `tenon advise --help`.
std::string advice_json(const Advice& advice, double seconds);

}  // namespace tenon
