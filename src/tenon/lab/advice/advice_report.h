// Advice as JSON for programs and as words for people: what `tenon advise` prints.
#pragma once

#include <string>

#include "tenon/lab/advice/advice.h"

namespace tenon {

// What to do, in a sentence or two.
std::string advice_verdict(const Advice& advice);

// One object; its keys are in `tenon advise --help`. `seconds`: how long the search took.
std::string advice_json(const Advice& advice, double seconds);
std::string advice_text(const Advice& advice, double seconds);

}  // namespace tenon
