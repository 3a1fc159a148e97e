#include "tools/lab/loadgen/options.h"

#include <stdio.h>

#include <CLI/CLI.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tools/lab/workload/load_flags.h"

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
  workload::LoadFlags flags;
  std::string url = "http://127.0.0.1:8000";
  std::vector<std::string> slos;
  double slo_ttft_ms = 1000, slo_tpot_ms = 0;
  bool quiet = false;
};

// Reads "name=800" or "name=800:60"; the numbers are milliseconds.
absl::Status ReadSlo(const std::string& text, Options* options) {
  const auto parts = workload::SplitPair(text);
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
  const std::string key = options->target.key;
  const auto target = openai::ParseUrl(load.url);
  if (!target.ok()) return target.status();
  options->target = *target;
  options->target.key = key;
  if (options->chat) options->target.path = "/v1/chat/completions";
  options->slo = {load.slo_ttft_ms / 1000, load.slo_tpot_ms / 1000};
  options->progress = !load.quiet;
  options->source = load.flags.source();
  for (const std::string& text : load.slos) {
    if (absl::Status s = ReadSlo(text, options); !s.ok()) return s;
  }
  return absl::OkStatus();
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
  workload::AddLoadFlags(&app, &load.flags);
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
    auto made = workload::MakeLoad(load.flags);
    wrong = made.status();
    if (made.ok()) *trace = *std::move(made);
  }
  if (wrong.ok()) return true;
  if (!absl::IsInvalidArgument(wrong)) *status = 1;
  fprintf(stderr, "loadgen: %s\n", std::string(wrong.message()).c_str());
  return false;
}

}  // namespace fineserve::loadgen
