#include "tools/lab/workload/load_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tools/lab/workload/arrivals.h"

namespace fineserve::workload {
namespace {

absl::StatusOr<Trace> FromLengths(const LoadFlags& load) {
  if (load.models.empty()) {
    return absl::InvalidArgumentError("--lengths needs --model NAME=RATE");
  }
  std::vector<Stream> streams;
  for (const std::string& text : load.models) {
    const auto parts = SplitPair(text);
    if (!parts.ok()) return parts.status();
    double rate = 0;
    if (!absl::SimpleAtod(parts->second, &rate) || !(rate >= 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--model ", text, ": RATE is not a number of at least 0"));
    }
    streams.push_back({parts->first, rate * load.scale});
  }
  const auto lengths = ReadLengths(load.lengths_path);
  if (!lengths.ok()) return lengths.status();
  if (lengths->empty()) {
    return absl::InvalidArgumentError(load.lengths_path + " is empty");
  }
  return Poisson(streams, load.seconds, *lengths, load.seed);
}

absl::StatusOr<Trace> FromTrace(const LoadFlags& load) {
  auto trace = ReadTrace(load.trace_path);
  if (!trace.ok()) return trace.status();
  std::vector<Renamed> names;
  for (const std::string& text : load.maps) {
    const auto parts = SplitPair(text);
    if (!parts.ok()) return parts.status();
    names.push_back({parts->first, parts->second});
  }
  if (!names.empty()) trace = Rename(*trace, names);
  if (!trace.ok()) return trace.status();
  return Scale(FirstSeconds(*trace, load.seconds), load.scale, load.seed);
}

}  // namespace

absl::StatusOr<std::pair<std::string, std::string>> SplitPair(
    const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not NAME=VALUE"));
  }
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

absl::StatusOr<Trace> MakeLoad(const LoadFlags& load) {
  if (load.trace_path.empty() == load.lengths_path.empty()) {
    return absl::InvalidArgumentError("give either --trace or --lengths");
  }
  auto trace = load.trace_path.empty() ? FromLengths(load) : FromTrace(load);
  if (!trace.ok()) return trace.status();
  for (Arrival& a : trace->arrivals) {
    uint32_t& input = a.lengths.input;
    uint32_t& output = a.lengths.output;
    if (load.most_input != 0) input = std::min(input, load.most_input);
    if (load.most_output != 0) output = std::min(output, load.most_output);
  }
  if (trace->arrivals.empty()) {
    return absl::InvalidArgumentError(
        "there is nothing to send: the load has no arrivals");
  }
  return Faster(*trace, load.speed);
}

void AddLoadFlags(CLI::App* app, LoadFlags* load) {
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

}  // namespace fineserve::workload
