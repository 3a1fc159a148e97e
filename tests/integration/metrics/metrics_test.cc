// fineserved's metrics as Prometheus sees them, while engines serve, one dies,
// and a daemon takes over from another.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "daemon/contract/metrics/metric_list.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/http_client.h"

namespace fineserve::integration {
namespace {

// One page of metrics in Prometheus's text format.
struct Scrape {
  std::string text;
  std::map<std::string, double> samples;     // by name and labels, as written
  std::map<std::string, std::string> types;  // by family

  // Returns the sample. If there is none, returns 0 and fails the test.
  double Of(const std::string& sample) const;
  // Returns the sum of all samples that begin with `beginning`.
  double Sum(const std::string& beginning) const;
  std::set<std::string> Families() const;
};

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

// Reads /metrics from this port of 127.0.0.1. The scrape is empty if there is
// no answer.
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

// Fails the test for each counter, and each part of a histogram, that is less
// in `later` than in `earlier`.
void ExpectNothingWentBackwards(const Scrape& earlier, const Scrape& later) {
  for (const auto& [sample, value] : earlier.samples) {
    if (!Grows(sample, earlier)) continue;
    const auto now = later.samples.find(sample);
    if (now == later.samples.end()) continue;  // its engine is gone
    EXPECT_GE(now->second, value) << sample;
  }
}

using ::testing::HasSubstr;
using ::testing::Not;

std::set<std::string> Listed(metrics::Program program) {
  std::set<std::string> names;
  for (const metrics::Metric& metric : metrics::AllMetrics()) {
    // There is no planner here.
    if (metric.program == program &&
        std::string(metric.name).find("_plan_") == std::string::npos) {
      names.insert(metric.name);
    }
  }
  return names;
}

class MetricsTest : public ServingSite {
 protected:
  const std::string kFlags = "--view --speed 200 --max-model-len 1024 ";

  // Ends the supervisor with SIGTERM, because a supervisor that is killed would
  // leave its daemon behind.
  void TearDown() override {
    if (daemon_ == nullptr) return;
    EXPECT_EQ(daemon_->EndBy(SIGTERM), 0);
  }

  void StartAll() {
    const uint16_t wide_port = process::FreePort();
    const uint16_t deep_port = process::FreePort();
    WriteFleet({{"wide", 4096, wide_port}, {"deep", 8192, deep_port}},
               "fail_open");
    StartDaemonOfFleet({"--supervise", "--metrics", At(metrics_port_)});
    wide_ = StartTiny("wide", wide_port, kFlags + "--page 64KiB");
    deep_ = StartTiny("deep", deep_port, kFlags + "--planes 4 --page 32KiB");
    StartProxy();
  }
  static std::string At(uint16_t port) {
    return "127.0.0.1:" + std::to_string(port);
  }
  // Scrapes, and compares the page with the previous one.
  Scrape Next() {
    Scrape scrape = ScrapeAt(metrics_port_);
    if (!scrape.text.empty() &&
        scrape.Of("fineserve_daemon_start_time_seconds") == started_) {
      ExpectNothingWentBackwards(last_, scrape);
    }
    last_ = scrape;
    if (!scrape.text.empty()) {
      started_ = scrape.Of("fineserve_daemon_start_time_seconds");
    }
    return scrape;
  }
  void Ask(const TinyEngine& engine, int times) {
    for (int i = 0; i < times; ++i) {
      const HttpResponse answer = HttpClient(port()).Ask(
          "POST", "/v1/completions", engine.Body(Prompt(i, 100), 5));
      ASSERT_EQ(answer.status, 200) << answer.body;
    }
  }

  const uint16_t metrics_port_ = process::FreePort();
  std::unique_ptr<TinyEngine> wide_, deep_;
  Scrape last_;
  double started_ = 0;
};

TEST_F(MetricsTest, SaysWhatHappensWhileAnEngineAndADaemonDie) {
  StartAll();
  Ask(*wide_, 5);
  Ask(*deep_, 3);
  // It takes some seconds until the daemon knows how many replicas a demand
  // wants.
  EXPECT_TRUE(Eventually([&] {
    return Next().Families().count("fineserve_model_wanted_replicas") != 0;
  }));
  const Scrape serving = Next();
  EXPECT_EQ(serving.Families(), Listed(metrics::Program::kDaemon));
  EXPECT_EQ(serving.Of("fineserve_decisions_total{model=\"wide\","
                       "decision=\"admitted\"}"),
            5);
  EXPECT_EQ(serving.Sum("fineserve_pool_slabs{"), 8);
  EXPECT_EQ(serving.Sum("fineserve_pool_bytes{"), 64 << 20);
  EXPECT_GT(serving.Of("fineserve_engine_slabs{engine=\"deep\","
                       "model=\"deep\",state=\"partial\"}"),
            0);
  EXPECT_EQ(serving.Of("fineserve_engine_serves{engine=\"wide\","
                       "model=\"wide\"}"),
            1);
  EXPECT_EQ(serving.Of("fineserve_proxies"), 1);
  EXPECT_GT(serving.Of("fineserve_driver_call_seconds_count{call=\"zero\"}"),
            0);
  EXPECT_GT(serving.Of("fineserve_zeroing_seconds_count"), 0);

  wide_->process().Signal(SIGKILL);
  EXPECT_TRUE(Eventually([&] {
    const Scrape now = Next();
    return now.Of("fineserve_engines_died_total") == 1 &&
           now.Of("fineserve_engines{state=\"quarantined\"}") == 0;
  }));
  EXPECT_EQ(last_.Of("fineserve_engine_starts_total{engine=\"wide\"}"), 1);
  EXPECT_EQ(last_.Sum("fineserve_engine_slabs{engine=\"wide\""), 0);

  const Scrape before = Next();
  ASSERT_TRUE(KillDaemonOf(Table()));
  ASSERT_TRUE(Eventually([&] {
    const Scrape now = Next();
    return !now.text.empty() && now.Of("fineserve_takeovers_total") == 1;
  }));
  EXPECT_GE(last_.Of("fineserve_leases_granted_total"),
            before.Of("fineserve_leases_granted_total"));
  EXPECT_EQ(last_.Of("fineserve_engines_died_total"), 1);
  EXPECT_EQ(last_.Sum("fineserve_engine_starts_total"), 0);
  ASSERT_TRUE(Eventually([&] { return Next().Of("fineserve_proxies") == 1; }));
  Ask(*deep_, 2);
  EXPECT_GE(Next().Of("fineserve_decisions_total{model=\"deep\","
                      "decision=\"admitted\"}"),
            2);
}

// Mapping is slow here, as it is while the driver frees another process's
// memory.
TEST_F(MetricsTest, SaysHowLongStepsOfAGuardedViewWaitedForTheDriver) {
  const uint16_t port = process::FreePort();
  WriteFleet({{"wide", 4096, port}}, "fail_open");
  StartDaemonOfFleet({"--supervise", "--metrics", At(metrics_port_)});
  Set("EMUCUDA_LATENCY_US", "cuMemMap=3000");
  wide_ = StartTiny("wide", port, kFlags + "--page 64KiB --mode guarded");
  StartProxy();
  Ask(*wide_, 1);
  const std::string labels = "{engine=\"wide\",model=\"wide\"}";
  EXPECT_TRUE(Eventually([&] {
    return Next().Of("fineserve_engine_longest_swap_seconds" + labels) >= 0.003;
  }));
  EXPECT_GE(last_.Of("fineserve_engine_swap_seconds" + labels),
            last_.Of("fineserve_engine_longest_swap_seconds" + labels));
}

TEST_F(MetricsTest, IsOffUnlessWantedAndMovesWithTheConfiguration) {
  const std::string config = folder() + "/fineserved.toml";
  const uint16_t other_port = process::FreePort();
  std::ofstream(config) << "log_level = \"info\"\n";
  const auto daemon = StartDaemon({"--config", config});
  EXPECT_THAT(daemon->Stderr(), Not(HasSubstr("metrics are at")));
  const auto set = [&](const std::string& line) {
    std::ofstream(config) << line << "\n";
    daemon->Signal(SIGHUP);
  };
  set("metrics = \"" + std::to_string(metrics_port_) + "\"");
  EXPECT_TRUE(
      Eventually([&] { return !ScrapeAt(metrics_port_).text.empty(); }));
  EXPECT_THAT(daemon->Stderr(), HasSubstr("metrics are at http://" +
                                          At(metrics_port_) + "/metrics"));
  set("metrics = \"" + At(other_port) + "\"");
  EXPECT_TRUE(Eventually([&] { return !ScrapeAt(other_port).text.empty(); }));
  EXPECT_TRUE(ScrapeAt(metrics_port_).text.empty());
  set("metrics = \"off\"");
  EXPECT_TRUE(Eventually([&] { return ScrapeAt(other_port).text.empty(); }));
}

TEST_F(MetricsTest, APortThatIsTakenIsSaidBeforeThePoolIsServed) {
  Set("EMUCUDA_DEVICES", "2");
  const auto daemon = StartDaemon({"--metrics", At(metrics_port_)});
  const Finished second =
      RunToEnd({Program("fineserved"), "--gpu", "emulated:1", "--pool", "16MiB",
                "--slab", "4MiB", "--metrics", At(metrics_port_)},
               environment());
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.err, HasSubstr("cannot listen on " + At(metrics_port_)));
}

TEST_F(MetricsTest, AnAddressThatIsNoneIsAMistakeOfUsage) {
  for (const char* address : {"localhost", "1.2.3.4:x", "70000"}) {
    const Finished bad = RunToEnd({Program("fineserved"), "--gpu", "emulated",
                                   "--pool", "16MiB", "--metrics", address},
                                  environment());
    EXPECT_EQ(bad.code, 2) << address;
    EXPECT_THAT(bad.err, HasSubstr("write it like 127.0.0.1:9470"));
  }
}

// As scripts that set Prometheus up have it.
TEST_F(MetricsTest, PromtoolFindsNothingWrongWithThePage) {
  if (system("command -v promtool >/dev/null") != 0) {
    GTEST_SKIP() << "no promtool: scripts/setup installs Debian's prometheus";
  }
  StartAll();
  Ask(*wide_, 1);
  const std::string page = folder() + "/page";
  std::ofstream(page) << Next().text;
  const Finished checked =
      RunToEnd({"sh", "-c", "promtool check metrics < " + page}, environment());
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_EQ(checked.err, "");
}

}  // namespace
}  // namespace fineserve::integration
