// What a driver's calls cost, from a file. Thread-safe. O(size of the file).
#pragma once

#include <string>

#include "tenon/device/sim/cost_model.h"

namespace tenon {

// Reads a file in the format of data/driver_costs.json. Throws ParseError naming the key at fault.
CostModel read_cost_model(const std::string& path);

}  // namespace tenon
