#include "tools/fsctl/metrics/metrics_command.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/metrics/metric_list.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;
using metrics::Metric;

std::vector<Metric> Chosen(const std::string& part) {
  std::vector<Metric> chosen;
  for (const Metric& metric : metrics::AllMetrics()) {
    const std::string words =
        absl::AsciiStrToLower(absl::StrCat(metric.name, " ", metric.meaning));
    if (absl::StrContains(words, absl::AsciiStrToLower(part))) {
      chosen.push_back(metric);
    }
  }
  return chosen;
}

const char* PageOf(metrics::Program program) {
  return program == metrics::Program::kDaemon
             ? "fineserved: http://HOST:PORT/metrics of --metrics"
             : "fineserve-proxy: /metrics of its admin port";
}

std::string NameWithLabels(const Metric& metric) {
  const std::string labels = metric.labels;
  return labels.empty() ? metric.name
                        : absl::StrCat(metric.name, "{", labels, "}");
}

}  // namespace

std::string MetricsText(const MetricsOptions& options, bool color) {
  std::string out;
  const char* page = nullptr;
  for (const Metric& metric : Chosen(options.part)) {
    if (page != PageOf(metric.program)) {
      absl::StrAppend(&out, page == nullptr ? "" : "\n");
      page = PageOf(metric.program);
      absl::StrAppend(&out, Paint(color, Color::kBold, page), "\n");
    }
    absl::StrAppend(
        &out, "  ", NameWithLabels(metric), "  ",
        Paint(color, Color::kDim,
              absl::StrCat(metrics::Name(metric.type), ", ", metric.unit)),
        "\n      ", metric.meaning, "\n");
  }
  return out;
}

std::string MetricsJson(const MetricsOptions& options) {
  Json all = Json::array();
  for (const Metric& metric : Chosen(options.part)) {
    Json labels = Json::array();
    for (const absl::string_view label : metrics::LabelNames(metric)) {
      labels.push_back(std::string(label));
    }
    all.push_back({{"name", metric.name},
                   {"program", metrics::Name(metric.program)},
                   {"type", metrics::Name(metric.type)},
                   {"unit", metric.unit},
                   {"labels", labels},
                   {"meaning", metric.meaning}});
  }
  return JsonText({{"metrics", all}});
}

int RunMetrics(const Globals& globals, const MetricsOptions& options) {
  if (Chosen(options.part).empty()) {
    return Fail(kExitBadAnswer,
                absl::StrCat("no metric matches \"", options.part,
                             "\"; fsctl metrics lists them all"));
  }
  return Print(globals.json ? MetricsJson(options)
                            : MetricsText(options, globals.color));
}

void AddMetrics(Commands& c) {
  const auto [command, o] =
      c.Add("metrics", "List the metrics that Prometheus can read",
            "  fsctl metrics\n"
            "  fsctl metrics quarantine        whose name or meaning says so\n"
            "  fsctl metrics --json | jq -r '.metrics[].name'\n",
            RunMetrics);
  command->add_option("PART", o->part,
                      "List those alone whose name or meaning has this part");
}

}  // namespace fineserve::fsctl
