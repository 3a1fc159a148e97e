#ifndef TESTS_INTEGRATION_METRICS_SCRAPE_H_
#define TESTS_INTEGRATION_METRICS_SCRAPE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace fineserve::integration {

// One page of metrics in Prometheus's text format.
struct Scrape {
  std::string text;
  std::map<std::string, double> samples;     // by name and labels, as written
  std::map<std::string, std::string> types;  // by family

  // 0 and a test failure if there is no such sample.
  double Of(const std::string& sample) const;
  // The sum of all samples that begin so.
  double Sum(const std::string& beginning) const;
  std::set<std::string> Families() const;
};

// Reads /metrics of this port of 127.0.0.1 now; empty if there is no answer.
Scrape ScrapeAt(uint16_t port);

// Fails the test for each counter, and each part of a histogram, that is less
// in `later` than in `earlier`.
void ExpectNothingWentBackwards(const Scrape& earlier, const Scrape& later);

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_METRICS_SCRAPE_H_
