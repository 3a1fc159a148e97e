#include "daemon/base/log/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <iterator>

namespace fineserve::log {
namespace {

spdlog::level::level_enum To(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void Begin(const std::string& program, const std::string& level) {
  auto logger = spdlog::stderr_color_mt(program);
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %n %^%l%$: %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(logger);
}

void SetLevel(const std::string& level) {
  spdlog::set_level(spdlog::level::from_str(level));
}

void Write(Level level, fmt::string_view format, fmt::format_args arguments) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  if (!logger->should_log(To(level))) return;
  fmt::memory_buffer line;
  fmt::vformat_to(std::back_inserter(line), format, arguments);
  logger->log(To(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace fineserve::log
