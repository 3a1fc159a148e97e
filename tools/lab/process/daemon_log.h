#ifndef TOOLS_LAB_PROCESS_DAEMON_LOG_H_
#define TOOLS_LAB_PROCESS_DAEMON_LOG_H_

#include <string>

namespace fineserve::process {

// Returns the UUID in the line "serving … on …/GPU-….sock" of a daemon's log;
// empty if the log has none.
inline std::string GpuInLog(const std::string& log) {
  const size_t slash = log.rfind("/GPU-");
  if (slash == std::string::npos) return "";
  const size_t end = log.find(".sock", slash);
  if (end == std::string::npos) return "";
  return log.substr(slash + 1, end - slash - 1);
}

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_DAEMON_LOG_H_
