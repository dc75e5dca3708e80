// A whole program: steps, evaluation, streams.
#pragma once

#include "tenon/lab/synthesis/program.h"
#include "tenon/lab/synthesis/recipe.h"

namespace tenon::synthesis {

// Runs the recipe to its end and returns what was recorded.
Trace run_program(Program& program, const Recipe& recipe);

}  // namespace tenon::synthesis
