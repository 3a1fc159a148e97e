// Tests what tools/monitoring says of a real fleet: a real Prometheus scrapes a
// daemon and a proxy while engines serve, the daemon is killed and started
// again, an engine is killed and the pool is exhausted. Exactly the intended
// alerts fire, and each query of each dashboard has data to show.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "daemon/contract/metrics/metric_list.h"
#include "tests/integration/planning/planning_site.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tests/monitoring/prometheus.h"
#include "tools/lab/process/free_port.h"

namespace fineserve::monitoring {
namespace {

using integration::Eventually;
using integration::HttpClient;
using integration::Process;
using integration::ServingSite;
using integration::TinyEngine;
using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const std::string kFolder = FINESERVE_SOURCE_DIR "/tools/monitoring/";

// How long a minute of the rules takes. Moving a model takes longer than any
// of the faults, and must not alarm.
constexpr int kSecondsAMinute = 1, kSecondsAMinuteOfAMove = 2;

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_NE(text.str(), "") << path;
  return text.str();
}

struct Panel {
  std::string title;
  std::string query;
};

// Returns the names of our metrics in a text.
std::set<std::string> MetricsIn(const std::string& text) {
  static const std::regex name("\\bfineserve_[a-z_]+");
  std::set<std::string> named;
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end;
       ++it) {
    named.insert(it->str());
  }
  return named;
}

bool IsOfPlans(const std::string& metric) {
  return metric.rfind("fineserve_plan_", 0) == 0;
}

// Returns the queries of a dashboard, as Grafana would send them with "All"
// chosen.
std::vector<Panel> PanelsOf(const std::string& name, int seconds_a_minute) {
  std::vector<Panel> panels;
  const json dashboard =
      json::parse(ReadFile(kFolder + "dashboards/" + name + ".json"));
  for (const json& panel : dashboard["panels"]) {
    for (const json& target : panel["targets"]) {
      std::string query = target["expr"].get<std::string>();
      query = std::regex_replace(query, std::regex("\\$__rate_interval"), "5m");
      query = std::regex_replace(query, std::regex("\\$[a-z]+"), ".*");
      panels.push_back({name + ": " + panel["title"].get<std::string>(),
                        Hastened(query, seconds_a_minute)});
    }
  }
  return panels;
}

// A client that asks for a short stream ten times a second.
class SteadyLoad {
 public:
  SteadyLoad(uint16_t port, std::string body)
      : thread_([this, port, body = std::move(body)] {
          while (!ending_) {
            HttpClient client(port);
            client.Send("POST", "/v1/completions", body);
            client.ReadHead();
            client.ReadBody();
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
          }
        }) {}
  ~SteadyLoad() {
    ending_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

class MonitoringTest : public ServingSite {
 protected:
  void SetUp() override {
    if (system("command -v prometheus >/dev/null") != 0) {
      GTEST_SKIP() << "no prometheus: scripts/setup installs Debian's";
    }
    Set("EMUCUDA_MEMORY", "2GiB");
  }

  void StartDaemonWithMetrics() {
    StartDaemonOfFleet({"--pool", "192MiB", "--metrics",
                        "127.0.0.1:" + std::to_string(metrics_port_)});
  }
  void StartAll() {
    WriteFleet({{"wide", 4096, wide_port_}, {"deep", 8192, deep_port_}},
               "fail_open");
    SetAdminPort();
    StartDaemonWithMetrics();
    // It looks for the first time when all of them are there.
    prometheus_ = std::make_unique<Prometheus>(
        std::vector<Prometheus::Job>{{"fineserved", metrics_port_},
                                     {"fineserve-proxy", admin_port_}},
        Hastened(ReadFile(kFolder + "fineserve.rules.yml"), kSecondsAMinute));
    StartEngines();
    StartProxy();
    ASSERT_TRUE(prometheus_->SeesAllJobs()) << prometheus_->Stderr();
  }
  // Sets the admin port, because Prometheus has to know it beforehand.
  void SetAdminPort() {
    const std::string fleet = ReadFile(fleet_path());
    std::ofstream(fleet_path()) << std::regex_replace(
        fleet, std::regex("admin = \"127.0.0.1:0\""),
        "admin = \"127.0.0.1:" + std::to_string(admin_port_) + "\"");
  }
  void StartEngines() {
    const std::string flags = "--view --speed 20 --max-model-len 1024 ";
    wide_ = StartTiny("wide", wide_port_, flags + "--page 64KiB");
    deep_ = StartTiny("deep", deep_port_, flags + "--planes 4 --page 32KiB");
  }
  std::unique_ptr<Process> StartTrader(const std::string& name) {
    return StartRandomView(
        name, integration::Words(
                  "--most 3000 --watermark 100 --planes 4 --page 32768"));
  }
  void BeginLoad() {
    for (const TinyEngine* engine : {wide_.get(), deep_.get()}) {
      loads_.push_back(std::make_unique<SteadyLoad>(
          port(), engine->Body("one two three four", 8, ", \"stream\": true")));
    }
  }
  bool EventuallyFires(const std::string& alert) {
    return Eventually([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return prometheus_->Firing().count(alert) > 0;
    });
  }
  bool EventuallyNoneFires() {
    return Eventually([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return prometheus_->Firing().empty();
    });
  }

  const uint16_t metrics_port_ = process::FreePort();
  const uint16_t admin_port_ = process::FreePort();
  const uint16_t wide_port_ = process::FreePort();
  const uint16_t deep_port_ = process::FreePort();
  std::unique_ptr<TinyEngine> wide_, deep_;
  std::unique_ptr<Prometheus> prometheus_;
  std::vector<std::unique_ptr<SteadyLoad>> loads_;
};

TEST_F(MonitoringTest, TheAlertsThatAreMeantFireAndEachPanelShowsSomething) {
  StartAll();
  BeginLoad();
  HttpClient(port()).Ask("POST", "/v1/completions", "{\"model\": \"no\"}");
  EXPECT_TRUE(Eventually([&] {
    return prometheus_->SeriesNow(
               "increase(fineserve_first_tokens_total{slo=\"on_time\"}[5s]) > "
               "0") == loads_.size();
  }));
  EXPECT_THAT(prometheus_->EverFired(), IsEmpty());

  // The daemon is killed, and another begins with a new pool.
  daemon_->EndBy(SIGKILL);
  for (const char* alert :
       {"FineserveFailsOpen", "FineservedAway", "FineserveUndecided"}) {
    EXPECT_TRUE(EventuallyFires(alert)) << alert;
  }
  StartDaemonWithMetrics();

  // Until then, Prometheus does not see what the counters count.
  EXPECT_TRUE(prometheus_->SeesAllJobs()) << prometheus_->Stderr();

  {
    // Two engines that pass slabs back and forth.
    const auto a = StartTrader("trader-a");
    const auto b = StartTrader("trader-b");
    EXPECT_TRUE(Eventually([&] {
      return prometheus_->SeriesNow(
                 "increase(fineserve_hand_overs_total[5s]) > 0") > 0;
    }));
    for (Process* trader : {a.get(), b.get()}) trader->Signal(SIGTERM);
    for (Process* trader : {a.get(), b.get()}) trader->Wait();
    EXPECT_TRUE(
        Eventually([&] { return SlabsIn(abi::SlabState::kFree) >= 4; }));
  }

  // An engine of the new pool is killed while its work continues; another
  // engine asks for more memory than there is.
  auto batch =
      StartEngine("16MiB", {}, {{"EMUCUDA_LINGER_MS", kUntilEndLingering}});
  ASSERT_THAT(batch->Ask("queue"), HasSubstr("ok queued"));
  batch->EndBy(SIGKILL);
  const auto greedy = LaunchEngine("192MiB");
  EXPECT_TRUE(EventuallyFires("FineservePoolExhausted"));
  greedy->Signal(SIGKILL);
  EXPECT_TRUE(EventuallyFires("FineserveFormerPool")) << daemon_->Stderr();
  EXPECT_THAT(Fsctl({"doctor"}).out, HasSubstr("the pool of a former daemon"));
  loads_.clear();
  wide_.reset();
  deep_.reset();
  StartEngines();
  EXPECT_TRUE(EventuallyFires("FineserveQuarantineStuck"));
  EndLingering();
  BeginLoad();
  EXPECT_TRUE(EventuallyNoneFires())
      << testing::PrintToString(prometheus_->Firing());

  EXPECT_THAT(
      prometheus_->EverFired(),
      UnorderedElementsAre("FineservePoolExhausted", "FineserveQuarantineStuck",
                           "FineserveFailsOpen", "FineservedAway",
                           "FineserveUndecided", "FineserveFormerPool"));
  EXPECT_THAT(prometheus_->BrokenRules(), IsEmpty());
  for (const char* dashboard : {"overview", "gpu", "model"}) {
    const std::vector<Panel> panels = PanelsOf(dashboard, kSecondsAMinute);
    EXPECT_GT(panels.size(), 10u);
    for (const Panel& panel : panels) {
      EXPECT_GT(prometheus_->SeriesEver(panel.query), 0)
          << panel.title << "\n  " << panel.query;
    }
  }
  // Prometheus has all metrics of the rules, except those that only a planner
  // has, or a proxy that ends TLS (tls_test.cc).
  const std::set<std::string> named =
      MetricsIn(ReadFile(kFolder + "fineserve.rules.yml"));
  EXPECT_GT(named.size(), 10u);
  for (const std::string& metric : named) {
    if (IsOfPlans(metric) ||
        metric == "fineserve_certificate_expiry_timestamp_seconds") {
      continue;
    }
    // Demand is known only some seconds after a daemon's start.
    EXPECT_TRUE(Eventually([&] { return prometheus_->SeriesEver(metric) > 0; }))
        << metric;
  }
}

// Two GPUs whose daemons plan. They are scraped from the time when all models
// are served.
class PlannedMonitoringTest : public integration::PlanningSite {
 protected:
  void SetUp() override {
    if (system("command -v prometheus >/dev/null") != 0) {
      GTEST_SKIP() << "no prometheus: scripts/setup installs Debian's";
    }
    PlanningSite::SetUp();
  }
  std::vector<std::string> FlagsOfDaemon(int gpu) const override {
    return {"--metrics", "127.0.0.1:" + std::to_string(metrics_ports_[gpu])};
  }
  bool MovesToTheOtherGpu(int model) {
    const auto before = See();
    if (!before) return false;
    const int to = 1 - ServingGpu(*before, model);
    const std::string pin = models_[model].model() + "=" + gpus_[to];
    return Fsctl({"plan", "--pin", pin}).code == 0 &&
           Fsctl({"plan", "--apply"}).code == 0 &&
           process::BecomesTrue(
               [&] {
                 const auto plan = See();
                 return plan && ServingGpu(*plan, model) == to;
               },
               kConvergence) &&
           Settles();
  }

  const uint16_t metrics_ports_[2] = {process::FreePort(), process::FreePort()};
};

TEST_F(PlannedMonitoringTest, FiguresOfPlansAreThereAndAMoveRaisesNoAlert) {
  Prometheus prometheus(
      {{"first", metrics_ports_[0]}, {"second", metrics_ports_[1]}},
      Hastened(ReadFile(kFolder + "fineserve.rules.yml"),
               kSecondsAMinuteOfAMove));
  // Requests that come before there is an engine count as missed.
  prometheus.Hold();
  StartAll();
  prometheus.Continue();
  ASSERT_TRUE(prometheus.SeesAllJobs()) << prometheus.Stderr();
  ASSERT_TRUE(MovesToTheOtherGpu(0)) << Fsctl({"plan"}).out;
  EXPECT_TRUE(Eventually([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return prometheus.SeriesNow(
        "increase(fineserve_plan_moves_total[20s]) > 0");
  }));

  int asked = 0;
  for (const Panel& panel : PanelsOf("overview", kSecondsAMinuteOfAMove)) {
    if (panel.query.find("fineserve_plan_") == std::string::npos) continue;
    ++asked;
    // Removes the default for a fleet without a plan, because it says nothing
    // about the metric.
    const std::string query =
        std::regex_replace(panel.query, std::regex(" or vector\\(0\\)"), "");
    EXPECT_GT(prometheus.SeriesEver(query), 0)
        << panel.title << "\n  " << query;
  }
  EXPECT_EQ(asked, 2);
  int listed = 0;
  for (const metrics::Metric& metric : metrics::AllMetrics()) {
    if (!IsOfPlans(metric.name)) continue;
    ++listed;
    EXPECT_GT(prometheus.SeriesEver(metric.name), 0) << metric.name;
  }
  EXPECT_EQ(listed, 7);
  EXPECT_EQ(prometheus.SeriesNow("fineserve_plan_leads == 1"), 1u);
  EXPECT_THAT(prometheus.EverFired(), IsEmpty());
  EXPECT_THAT(prometheus.BrokenRules(), IsEmpty());
}

// Every metric that a rule or a dashboard names is one that we export.
TEST(MonitoringFilesTest, NameNoMetricThatIsNotListed) {
  std::set<std::string> listed;
  for (const metrics::Metric& metric : metrics::AllMetrics()) {
    listed.insert(metric.name);
    if (metric.type != metrics::MetricType::kHistogram) continue;
    for (const char* part : {"_bucket", "_sum", "_count"}) {
      listed.insert(std::string(metric.name) + part);
    }
  }
  for (const char* file : {"fineserve.rules.yml", "fineserve.rules.test.yml",
                           "dashboards/overview.json", "dashboards/gpu.json",
                           "dashboards/model.json"}) {
    for (const std::string& metric : MetricsIn(ReadFile(kFolder + file))) {
      EXPECT_THAT(listed, Contains(metric)) << file;
    }
  }
}

TEST(MonitoringFilesTest, EachAlertHasAScenarioInWhichItFires) {
  const std::string rules = ReadFile(kFolder + "fineserve.rules.yml");
  const std::string tests = ReadFile(kFolder + "fineserve.rules.test.yml");
  const std::regex alert("- alert: (\\w+)");
  for (std::sregex_iterator it(rules.begin(), rules.end(), alert), end;
       it != end; ++it) {
    const std::string name = (*it)[1];
    const std::regex fires("alertname: " + name +
                           "\\s+eval_time: \\w+\\s+exp_alerts:");
    EXPECT_TRUE(std::regex_search(tests, fires)) << name;
  }
}

TEST(MonitoringFilesTest, PromtoolFindsTheScenariosTrue) {
  if (system("command -v promtool >/dev/null") != 0) {
    GTEST_SKIP() << "no promtool: scripts/setup installs Debian's prometheus";
  }
  for (const char* command : {"promtool test rules fineserve.rules.test.yml",
                              "promtool check config prometheus.yml"}) {
    const integration::Finished done = integration::RunToEnd(
        {"sh", "-c", "cd " + kFolder + " && " + command}, {});
    EXPECT_EQ(done.code, 0) << done.out << done.err;
  }
}

TEST(HastenedTest, ShortensDurationsAndNothingElse) {
  EXPECT_EQ(
      Hastened("rate(ratio_rate5m[5m]) > 5 * 60 for: 1h # in 15 minutes", 2),
      "rate(ratio_rate5m[10s]) > 5 * 2 for: 120s # in 15 minutes");
}

}  // namespace
}  // namespace fineserve::monitoring
