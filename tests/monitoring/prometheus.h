#ifndef TESTS_MONITORING_PROMETHEUS_H_
#define TESTS_MONITORING_PROMETHEUS_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/process.h"

namespace fineserve::monitoring {

// How long a minute of the rules takes in a test.
inline constexpr int kSecondsAMinute = 2;

// Rules (or a query) whose minutes and hours are that short: durations, and
// numbers of minutes that are written as "N * 60".
std::string Hastened(const std::string& rules);

// A real Prometheus, which scrapes every second and keeps its data in a folder
// of its own.
class Prometheus {
 public:
  struct Job {
    std::string name;
    uint16_t port;
  };

  // Starts it with `rules`, a file's content, and waits until it has scraped
  // all jobs: before that, nothing that happens is seen.
  Prometheus(const std::vector<Job>& jobs, const std::string& rules);

  size_t SeriesNow(const std::string& query);
  // How many series had a value, and not NaN, at some time since it started.
  int SeriesEver(const std::string& query);
  // The names of the alerts that fire now, or that ever fired.
  std::set<std::string> Firing();
  std::set<std::string> EverFired();
  // Of /api/v1/rules: names of rules that cannot be evaluated, and why.
  std::vector<std::string> BrokenRules();

  std::string Stderr() const { return process_->Stderr(); }

 private:
  nlohmann::json Get(const std::string& path);
  std::set<std::string> AlertNames(const std::string& query);

  const process::TemporaryFolder folder_;
  const uint16_t port_;
  std::unique_ptr<integration::Process> process_;
  int64_t began_s_ = 0;
};

}  // namespace fineserve::monitoring

#endif  // TESTS_MONITORING_PROMETHEUS_H_
