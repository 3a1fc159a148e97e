#include "bench/slo/serving_site.h"

#include <signal.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "bench/micro/report.h"
#include "tests/process/free_port.h"

namespace fineserve::bench {

using process::FreePort;
using process::ProgramFolder;

namespace {

std::string ModelText(const std::string& name, uint16_t port,
                      uint32_t token_bytes) {
  return absl::StrCat(
      "[[model]]\nname = \"", name,
      "\"\nslo_ttft_ms = 1000\nchunk_tokens = ", ServingSite::kChunkTokens,
      "\nmax_batch = 64\nkv_token_bytes = ", token_bytes,
      "\nprofile = { base_us = ", ServingSite::kBaseUs,
      ", per_token_us = ", ServingSite::kTokenUs,
      ", per_sequence_us = ", ServingSite::kSequenceUs,
      " }\n[[engine]]\nname = \"", name, "\"\nmodel = \"", name,
      "\"\nurl = \"http://127.0.0.1:", port, "\"\n");
}

}  // namespace

ServingSite::ServingSite(const std::string& policy)
    : fp16_port_(FreePort()), fp8_port_(FreePort()), proxy_port_(FreePort()) {
  WriteFleet(policy);
  gpu_.StartDaemon({"--pool", "384MiB", "--slab", "8MiB", "--planes", "4",
                    "--fleet", Fleet()});
  StartEngine("fp16", fp16_port_, {"--page", "64KiB"});
  StartEngine("fp8", fp8_port_, {"--planes", "4", "--page", "8KiB"});
  processes_.emplace_back(
      process::Command{.words = {ProgramFolder() + "/fineserve-proxy",
                                 "--fleet", Fleet(), "--log-level", "error"},
                       .end_signal = SIGTERM});
}

// The proxy ends before the processes that it uses.
ServingSite::~ServingSite() {
  while (!processes_.empty()) processes_.pop_back();
}

void ServingSite::WriteFleet(const std::string& policy) const {
  std::ofstream file(Fleet());
  file << "[proxy]\nlisten = \"127.0.0.1:" << proxy_port_
       << "\"\nadmin = \"127.0.0.1:0\"\nwithout_daemon = \"fail_closed\"\n"
          "drain = 1\n[scheduler]\npolicy = \""
       << policy << "\"\n"
       << ModelText("fp16", fp16_port_, 4096)
       << ModelText("fp8", fp8_port_, 2048);
  if (!file.flush()) Die("cannot write " + Fleet());
}

void ServingSite::StartEngine(const std::string& model, uint16_t port,
                              const std::vector<std::string>& format) {
  std::vector<std::string> words = {ProgramFolder() + "/tinyserve",
                                    "--view",
                                    "--model",
                                    model,
                                    "--port",
                                    absl::StrCat(port),
                                    "--max-num-batched-tokens",
                                    absl::StrCat(kChunkTokens),
                                    "--max-model-len",
                                    absl::StrCat(kLongestTokens),
                                    "--step-base-us",
                                    absl::StrCat(kBaseUs),
                                    "--step-token-us",
                                    absl::StrCat(kTokenUs),
                                    "--step-sequence-us",
                                    absl::StrCat(kSequenceUs)};
  words.insert(words.end(), format.begin(), format.end());
  processes_.emplace_back(
      process::Command{.words = words,
                       .environment = gpu_.UnderPreload(model),
                       .end_signal = SIGTERM});
}

}  // namespace fineserve::bench
