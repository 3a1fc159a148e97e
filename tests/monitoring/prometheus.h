#ifndef TESTS_MONITORING_PROMETHEUS_H_
#define TESTS_MONITORING_PROMETHEUS_H_

#include <signal.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "tools/lab/stage/process.h"

namespace fineserve::monitoring {

// Returns rules (or a query) in which a minute lasts `seconds_a_minute`
// seconds: in durations of minutes and hours, and in numbers of minutes that
// are written as "N * 60".
std::string Hastened(const std::string& rules, int seconds_a_minute);

// A real Prometheus, which scrapes twice a second and keeps its data in a
// separate folder.
class Prometheus {
 public:
  struct Job {
    std::string name;
    uint16_t port;
  };

  // Starts Prometheus with `rules`, the content of a file. Its first scrape is
  // 5 s later.
  Prometheus(const std::vector<Job>& jobs, const std::string& rules);
  // Waits until Prometheus has started, and stops it before its first scrape.
  // If 5 s have passed, Continue makes it scrape at once.
  void Hold();
  void Continue() { process_->Signal(SIGCONT); }
  // Waits until all jobs answer. Before that, Prometheus sees nothing that
  // happens.
  bool SeesAllJobs();

  size_t SeriesNow(const std::string& query);
  // Returns the number of series that had a value other than NaN at some time
  // since Prometheus started.
  int SeriesEver(const std::string& query);
  // Returns the names of the alerts that fire now, or that ever fired.
  std::set<std::string> Firing();
  std::set<std::string> EverFired();
  // Returns the names of rules that cannot be evaluated, with the reason, by
  // /api/v1/rules.
  std::vector<std::string> BrokenRules();

  std::string Stderr() const { return process_->Stderr(); }

 private:
  bool IsReady();
  nlohmann::json Get(const std::string& path);
  std::set<std::string> AlertNames(const std::string& query);

  const process::TemporaryFolder folder_;
  const uint16_t port_;
  const size_t jobs_;
  std::unique_ptr<stage::Process> process_;
  int64_t began_s_ = 0;
};

}  // namespace fineserve::monitoring

#endif  // TESTS_MONITORING_PROMETHEUS_H_
