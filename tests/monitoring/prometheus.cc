#include "tests/monitoring/prometheus.h"

#include <gtest/gtest.h>
#include <time.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/http_client.h"

namespace fineserve::monitoring {
namespace {

using integration::HttpClient;
using integration::HttpResponse;
using nlohmann::json;

std::string Encoded(const std::string& text) {
  std::string out;
  for (const unsigned char c : text) {
    if (absl::ascii_isalnum(c)) {
      out += static_cast<char>(c);
    } else {
      absl::StrAppend(&out, "%", absl::Hex(c, absl::kZeroPad2));
    }
  }
  return out;
}

std::string Configuration(const std::vector<Prometheus::Job>& jobs) {
  std::string text =
      "global: {scrape_interval: 500ms, scrape_timeout: 500ms, "
      "evaluation_interval: 250ms}\nrule_files: [rules.yml]\nscrape_configs:\n";
  for (const Prometheus::Job& job : jobs) {
    absl::StrAppend(&text, "  - job_name: ", job.name,
                    "\n    static_configs: [{targets: [\"127.0.0.1:", job.port,
                    "\"]}]\n");
  }
  return text;
}

}  // namespace

std::string Hastened(const std::string& rules, int seconds_a_minute) {
  static const std::regex duration("\\b([0-9]+)([mh])\\b");
  std::string out;
  auto rest = rules.cbegin();
  for (std::sregex_iterator it(rules.begin(), rules.end(), duration), end;
       it != end; ++it) {
    const int minutes = std::stoi((*it)[1]) * ((*it)[2] == "h" ? 60 : 1);
    out.append(rest, (*it)[0].first);
    absl::StrAppend(&out, minutes * seconds_a_minute, "s");
    rest = (*it)[0].second;
  }
  out.append(rest, rules.cend());
  return std::regex_replace(out, std::regex("\\* 60\\b"),
                            absl::StrCat("* ", seconds_a_minute));
}

Prometheus::Prometheus(const std::vector<Job>& jobs, const std::string& rules)
    : port_(process::FreePort()), jobs_(jobs.size()) {
  std::ofstream(folder_.path() + "/rules.yml") << rules;
  std::ofstream(folder_.path() + "/prometheus.yml") << Configuration(jobs);
  began_s_ = time(nullptr);
  process_ = std::make_unique<stage::Process>(
      std::vector<std::string>{
          "prometheus", "--config.file=" + folder_.path() + "/prometheus.yml",
          "--storage.tsdb.path=" + folder_.path() + "/data",
          "--web.listen-address=127.0.0.1:" + std::to_string(port_)},
      process::Environment{});
}

bool Prometheus::IsReady() {
  HttpClient client(port_);
  return client.connected() && client.Ask("GET", "/-/ready").status == 200;
}

void Prometheus::Hold() {
  EXPECT_TRUE(process::Eventually([&] { return IsReady(); })) << Stderr();
  process_->Signal(SIGSTOP);
}

bool Prometheus::SeesAllJobs() {
  return process::Eventually(
      [&] { return IsReady() && SeriesNow("up == 1") == jobs_; });
}

json Prometheus::Get(const std::string& path) {
  const HttpResponse response = HttpClient(port_).Ask("GET", path);
  json answer = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(answer.is_discarded()) << path << ": " << response.body;
  return answer;
}

size_t Prometheus::SeriesNow(const std::string& query) {
  return Get("/api/v1/query?query=" + Encoded(query))["data"]["result"].size();
}

int Prometheus::SeriesEver(const std::string& query) {
  const json answer =
      Get(absl::StrCat("/api/v1/query_range?query=", Encoded(query),
                       "&start=", began_s_, "&end=", time(nullptr), "&step=1"));
  if (answer.value("status", "") != "success") {
    ADD_FAILURE() << query << ": " << answer.dump();
    return 0;
  }
  int series = 0;
  for (const json& one : answer["data"]["result"]) {
    bool has_value = false;
    for (const json& point : one["values"]) {
      has_value |= !std::isnan(std::stod(point[1].get<std::string>()));
    }
    series += has_value;
  }
  return series;
}

std::set<std::string> Prometheus::AlertNames(const std::string& query) {
  std::set<std::string> names;
  const json answer = Get("/api/v1/query?query=" + Encoded(query));
  for (const json& one : answer["data"]["result"]) {
    names.insert(one["metric"]["alertname"].get<std::string>());
  }
  return names;
}

std::set<std::string> Prometheus::Firing() {
  return AlertNames("ALERTS{alertstate=\"firing\"}");
}

std::set<std::string> Prometheus::EverFired() {
  return AlertNames("count_over_time(ALERTS{alertstate=\"firing\"}[1h])");
}

std::vector<std::string> Prometheus::BrokenRules() {
  std::vector<std::string> broken;
  const json answer = Get("/api/v1/rules");
  for (const json& group : answer["data"]["groups"]) {
    for (const json& rule : group["rules"]) {
      if (rule.value("health", "") == "ok") continue;
      broken.push_back(rule.value("name", "") + ": " +
                       rule.value("lastError", ""));
    }
  }
  return broken;
}

}  // namespace fineserve::monitoring
