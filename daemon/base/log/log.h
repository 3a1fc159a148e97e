#ifndef DAEMON_BASE_LOG_LOG_H_
#define DAEMON_BASE_LOG_LOG_H_

#include <fmt/core.h>

#include <string>

// Logs for our programs, one line a call, to stderr. Only log.cc includes the
// library behind it (spdlog), whose header costs seconds of compile time for
// each file; this one costs a tenth of that.
//
// The format is checked at compile time; arguments are formatted only if the
// level is logged. Any thread.
namespace fineserve::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// Logs as `program` from now on; `level` as in SetLevel. Without this call,
// lines of kInfo and above are logged under no name. Called once, at start.
void Begin(const std::string& program, const std::string& level);

// "trace", "debug", "info", "warn", "error" or "off".
void SetLevel(const std::string& level);

void Write(Level level, fmt::string_view format, fmt::format_args arguments);

template <typename... T>
void Debug(fmt::format_string<T...> format, T&&... arguments) {
  Write(Level::kDebug, format, fmt::make_format_args(arguments...));
}
template <typename... T>
void Info(fmt::format_string<T...> format, T&&... arguments) {
  Write(Level::kInfo, format, fmt::make_format_args(arguments...));
}
template <typename... T>
void Warning(fmt::format_string<T...> format, T&&... arguments) {
  Write(Level::kWarning, format, fmt::make_format_args(arguments...));
}
template <typename... T>
void Error(fmt::format_string<T...> format, T&&... arguments) {
  Write(Level::kError, format, fmt::make_format_args(arguments...));
}

}  // namespace fineserve::log

#endif  // DAEMON_BASE_LOG_LOG_H_
