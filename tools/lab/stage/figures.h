#ifndef TOOLS_LAB_STAGE_FIGURES_H_
#define TOOLS_LAB_STAGE_FIGURES_H_

#include <cstdint>
#include <string>

namespace fineserve::stage {

// The number behind "name=" in an engine's answer; -1, and a failed test, if it
// has none.
int64_t FigureIn(const std::string& answer, const std::string& name);

// The value of the first sample on a page for Prometheus that begins with
// `sample`: a name, with all of its labels or none of them. -1 if none does.
double MetricOf(const std::string& page, const std::string& sample);

}  // namespace fineserve::stage

#endif  // TOOLS_LAB_STAGE_FIGURES_H_
