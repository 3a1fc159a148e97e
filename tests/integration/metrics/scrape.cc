#include "tests/integration/metrics/scrape.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/integration/serving/http_client.h"

namespace fineserve::integration {
namespace {

// True for a counter or a histogram, whose samples only grow.
bool Grows(const std::string& sample, const Scrape& page) {
  std::string name = sample.substr(0, sample.find('{'));
  for (const char* part : {"_bucket", "_sum", "_count"}) {
    const size_t at = name.size() - std::string(part).size();
    if (name.size() > std::string(part).size() && name.substr(at) == part &&
        page.types.count(name.substr(0, at)) > 0) {
      name = name.substr(0, at);
    }
  }
  const auto type = page.types.find(name);
  return type != page.types.end() && type->second != "gauge";
}

}  // namespace

double Scrape::Of(const std::string& sample) const {
  const auto found = samples.find(sample);
  if (found != samples.end()) return found->second;
  ADD_FAILURE() << "no " << sample << " in\n" << text;
  return 0;
}

double Scrape::Sum(const std::string& beginning) const {
  double sum = 0;
  for (const auto& [sample, value] : samples) {
    if (sample.rfind(beginning, 0) == 0) sum += value;
  }
  return sum;
}

std::set<std::string> Scrape::Families() const {
  std::set<std::string> names;
  for (const auto& [family, type] : types) names.insert(family);
  return names;
}

Scrape ScrapeAt(uint16_t port) {
  Scrape scrape;
  HttpClient client(port);
  if (!client.connected()) return scrape;
  const HttpResponse response = client.Ask("GET", "/metrics");
  if (client.broken() || response.status == 0) return scrape;  // it ends
  EXPECT_EQ(response.status, 200) << response.body;
  scrape.text = response.body;
  std::istringstream lines(scrape.text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE ", 0) == 0) {
      const size_t space = line.rfind(' ');
      scrape.types[line.substr(7, space - 7)] = line.substr(space + 1);
    }
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(scrape.samples
                    .emplace(line.substr(0, space),
                             strtod(line.c_str() + space + 1, nullptr))
                    .second)
        << "twice: " << line;
  }
  return scrape;
}

void ExpectNothingWentBackwards(const Scrape& earlier, const Scrape& later) {
  for (const auto& [sample, value] : earlier.samples) {
    if (!Grows(sample, earlier)) continue;
    const auto now = later.samples.find(sample);
    if (now == later.samples.end()) continue;  // its engine is gone
    EXPECT_GE(now->second, value) << sample;
  }
}

}  // namespace fineserve::integration
