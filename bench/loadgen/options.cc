#include "bench/loadgen/options.h"

#include <stdio.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/workload/arrivals.h"

namespace fineserve::loadgen {
namespace {

constexpr char kFooter[] =
    "Sends requests at the times of a trace, or as Poisson arrivals with the\n"
    "lengths of a set, without waiting for answers (open loop), and reports "
    "how\n"
    "many kept their SLO. Drops and failures are misses. A request begins "
    "when\n"
    "it should be sent.\n"
    "\n"
    "  loadgen --lengths sharegpt.csv.gz --model llama-a=4 --model qwen=1 \\\n"
    "    --seconds 60 --slo-ttft-ms 800 --json run.json --svg run.svg\n"
    "  loadgen --trace azure2023_code.csv.gz --map azure-code-2023=llama-a \\\n"
    "    --seconds 120 --scale 2\n"
    "\n"
    "Exit codes: 0 requests were answered (the report says how), 1 a file\n"
    "could not be used or no answer came at all, 2 wrong usage";

struct Load {
  std::string url = "http://127.0.0.1:8000";
  std::string trace_path, lengths_path;
  std::vector<std::string> models, maps, slos;
  double seconds = 60, scale = 1, speed = 1;
  double slo_ttft_ms = 1000, slo_tpot_ms = 0;
  uint64_t seed = 1;
  uint32_t most_input = 0, most_output = 0;
  bool quiet = false;
};

// Splits "name=value" at the last '='.
absl::StatusOr<std::pair<std::string, std::string>> Split(
    const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not NAME=VALUE"));
  }
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

absl::StatusOr<workload::Trace> FromLengths(const Load& load) {
  if (load.models.empty()) {
    return absl::InvalidArgumentError("--lengths needs --model NAME=RATE");
  }
  std::vector<workload::Stream> streams;
  for (const std::string& text : load.models) {
    const auto parts = Split(text);
    if (!parts.ok()) return parts.status();
    double rate = 0;
    if (!absl::SimpleAtod(parts->second, &rate) || !(rate >= 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--model ", text, ": RATE is not a number of at least 0"));
    }
    streams.push_back({parts->first, rate * load.scale});
  }
  const auto lengths = workload::ReadLengths(load.lengths_path);
  if (!lengths.ok()) return lengths.status();
  if (lengths->empty()) {
    return absl::InvalidArgumentError(load.lengths_path + " is empty");
  }
  return workload::Poisson(streams, load.seconds, *lengths, load.seed);
}

absl::StatusOr<workload::Trace> FromTrace(const Load& load) {
  auto trace = workload::ReadTrace(load.trace_path);
  if (!trace.ok()) return trace.status();
  std::vector<workload::Renamed> names;
  for (const std::string& text : load.maps) {
    const auto parts = Split(text);
    if (!parts.ok()) return parts.status();
    names.push_back({parts->first, parts->second});
  }
  if (!names.empty()) trace = workload::Rename(*trace, names);
  if (!trace.ok()) return trace.status();
  return workload::Scale(workload::FirstSeconds(*trace, load.seconds),
                         load.scale, load.seed);
}

absl::StatusOr<workload::Trace> Made(const Load& load) {
  auto trace = load.trace_path.empty() ? FromLengths(load) : FromTrace(load);
  if (!trace.ok()) return trace.status();
  for (workload::Arrival& a : trace->arrivals) {
    uint32_t& input = a.lengths.input;
    uint32_t& output = a.lengths.output;
    if (load.most_input != 0) input = std::min(input, load.most_input);
    if (load.most_output != 0) output = std::min(output, load.most_output);
  }
  if (trace->arrivals.empty()) {
    return absl::InvalidArgumentError(
        "there is nothing to send: the load has no arrivals");
  }
  return workload::Faster(*trace, load.speed);
}

// Reads "name=800" or "name=800:60", in milliseconds.
absl::Status ReadSlo(const std::string& text, Options* options) {
  const auto parts = Split(text);
  if (!parts.ok()) return parts.status();
  const size_t colon = parts->second.find(':');
  double ttft_ms = 0, tpot_ms = 0;
  if (!absl::SimpleAtod(parts->second.substr(0, colon), &ttft_ms) ||
      (colon != std::string::npos &&
       !absl::SimpleAtod(parts->second.substr(colon + 1), &tpot_ms))) {
    return absl::InvalidArgumentError(
        absl::StrCat("--slo ", text, " is not NAME=TTFT_MS[:TPOT_MS]"));
  }
  options->slos[parts->first] = {ttft_ms / 1000, tpot_ms / 1000};
  return absl::OkStatus();
}

absl::Status Check(const Load& load, Options* options) {
  if (load.trace_path.empty() == load.lengths_path.empty()) {
    return absl::InvalidArgumentError("give either --trace or --lengths");
  }
  const std::string key = options->target.key;
  const auto target = openai::ParseUrl(load.url);
  if (!target.ok()) return target.status();
  options->target = *target;
  options->target.key = key;
  if (options->chat) options->target.path = "/v1/chat/completions";
  options->slo = {load.slo_ttft_ms / 1000, load.slo_tpot_ms / 1000};
  options->progress = !load.quiet;
  options->source = load.trace_path + load.lengths_path;
  for (const std::string& text : load.slos) {
    if (absl::Status s = ReadSlo(text, options); !s.ok()) return s;
  }
  return absl::OkStatus();
}

void AddLoad(CLI::App* app, Load* load) {
  const CLI::Range positive(1e-6, 1e9);
  app->add_option("--trace", load->trace_path,
                  "requests with times: timestamp_s,model,input_tokens,"
                  "output_tokens (.csv or .csv.gz)");
  app->add_option(
      "--map", load->maps,
      "FROM=TO: TO serves the trace's model FROM; without any --map "
      "all models are sent, otherwise only those named");
  app->add_option(
      "--lengths", load->lengths_path,
      "lengths without times: input_tokens,output_tokens; needs --model");
  app->add_option("--model", load->models,
                  "NAME=RATE: Poisson arrivals, requests per second");
  app->add_option("--seconds", load->seconds, "duration of the load")
      ->check(positive)
      ->capture_default_str();
  app->add_option("--scale", load->scale,
                  "multiply the load and keep its pattern in time")
      ->check(positive)
      ->capture_default_str();
  app->add_option("--speed", load->speed,
                  "replay this many times as fast (with fast engines)")
      ->check(positive)
      ->capture_default_str();
  app->add_option("--seed", load->seed)->capture_default_str();
  app->add_option("--most-input", load->most_input,
                  "cut prompts to this many tokens");
  app->add_option("--most-output", load->most_output,
                  "cut answers to this many tokens");
}

void AddRest(CLI::App* app, Load* load, Options* options) {
  app->add_option("--url", load->url)->capture_default_str();
  app->add_flag("--chat", options->chat, "send chats instead of completions");
  app->add_option("--key", options->target.key, "API key");
  app->add_option("--slo-ttft-ms", load->slo_ttft_ms)->capture_default_str();
  app->add_option("--slo-tpot-ms", load->slo_tpot_ms, "0: none")
      ->capture_default_str();
  app->add_option("--slo", load->slos, "NAME=TTFT_MS[:TPOT_MS] for one model");
  app->add_flag("--send-slo", options->send_slo,
                "send the SLOs in x-slo-ttft-ms and x-slo-tpot-ms");
  app->add_option("--timeout", options->timeout_s, "most seconds per request")
      ->capture_default_str();
  app->add_option(
         "--limit", options->limit_s,
         "seconds to wait after the last request was sent; 0: until all "
         "have ended")
      ->capture_default_str();
  app->add_option("--json", options->json_path, "write the report as JSON");
  app->add_option("--svg", options->svg_path,
                  "plot requests sent, done and on time per second");
  app->add_flag("--quiet", load->quiet, "show no progress");
}

}  // namespace

bool ReadOptions(int argc, char** argv, Options* options,
                 workload::Trace* trace, int* status) {
  CLI::App app("loadgen: puts an open-loop load on an OpenAI server");
  app.footer(kFooter);
  Load load;
  AddLoad(&app, &load);
  AddRest(&app, &load, options);
  *status = 2;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    *status = app.exit(e) == 0 ? 0 : 2;
    return false;
  }
  absl::Status wrong = Check(load, options);
  if (wrong.ok()) {
    auto made = Made(load);
    wrong = made.status();
    if (made.ok()) *trace = *std::move(made);
  }
  if (wrong.ok()) return true;
  if (!absl::IsInvalidArgument(wrong)) *status = 1;
  fprintf(stderr, "loadgen: %s\n", std::string(wrong.message()).c_str());
  return false;
}

}  // namespace fineserve::loadgen
