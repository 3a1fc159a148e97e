#ifndef TOOLS_LAB_STAGE_FIGURES_H_
#define TOOLS_LAB_STAGE_FIGURES_H_

#include <cstdint>
#include <string>

namespace fineserve::stage {

// Returns the number behind "name=" in an engine's answer. If there is none,
// fails the test and returns -1.
int64_t FigureIn(const std::string& answer, const std::string& name);

// Returns the value of the first sample on a Prometheus page that begins with
// `sample`: a name, with all of its labels or none of them. -1 if there is no
// such sample.
double MetricOf(const std::string& page, const std::string& sample);

}  // namespace fineserve::stage

#endif  // TOOLS_LAB_STAGE_FIGURES_H_
