// What is said at the end of a training run.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer.h"

namespace tenon::command {

// One object with the keys test_accuracy, final_loss, samples_per_second, peak_bytes,
// reserved_peak_bytes, driver_calls_after_step_2, weights_hash and layout_hash (16 hexadecimal
// digits each); with f16 also skipped_steps and loss_scale; where a device has no kernel for some
// operators also host_calls, by operator {calls, copied_bytes}; of a divided run also ranks, as
// ranks_json.
std::string train_json(const TrainOutcome& outcome);

// For people: accuracy and speed, the peak by use and by layer, allocator calls, what the arena
// needed, and what every policy would have needed for the recorded steps.
std::string train_report(const TrainOutcome& outcome, const std::string& policy);

// The memory and the traffic of each rank: an array of objects; a table.
nlohmann::ordered_json ranks_json(const std::vector<RankMemory>& ranks);
std::string ranks_report(const std::vector<RankMemory>& ranks);

}  // namespace tenon::command
