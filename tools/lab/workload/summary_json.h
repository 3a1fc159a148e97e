#ifndef TOOLS_LAB_WORKLOAD_SUMMARY_JSON_H_
#define TOOLS_LAB_WORKLOAD_SUMMARY_JSON_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "tools/lab/workload/metrics.h"

namespace fineserve::workload {

// The figures of Summary and the attainment by length decile, under the same
// names for all programs. Infinite values become null.
nlohmann::ordered_json ToJson(const std::vector<Outcome>& outcomes,
                              double seconds);

}  // namespace fineserve::workload

#endif  // TOOLS_LAB_WORKLOAD_SUMMARY_JSON_H_
