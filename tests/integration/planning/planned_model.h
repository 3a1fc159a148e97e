#ifndef TESTS_INTEGRATION_PLANNING_PLANNED_MODEL_H_
#define TESTS_INTEGRATION_PLANNING_PLANNED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/lab/stage/fleet_text.h"

namespace fineserve::integration {

// Describes a fleet's model that has a plan and is served by tinyserve. All
// such models are alike.

// Writes the model's profile to the folder: 200 MiB of weights, tinyserve's
// steps, and tokens that take 0.1 s, ten times as long as tinyserve needs, so
// that a few requests per second are a load that needs much KV. `ranks`: the
// GPUs of the model's engine.
void WritePlannedProfile(const std::string& model, uint32_t kv_token_bytes,
                         const std::string& folder, uint32_t ranks = 1);

// Returns the model's keys in a fleet file of that folder. `rate`: expected, in
// requests/s.
stage::TomlKeys PlannedKeys(const std::string& model, double rate);

// Returns the command line of the model's engine in a fleet file.
std::vector<std::string> PlannedCommand(const std::string& tinyserve,
                                        const std::string& model);

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_PLANNING_PLANNED_MODEL_H_
