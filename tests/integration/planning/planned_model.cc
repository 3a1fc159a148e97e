#include "tests/integration/planning/planned_model.h"

#include <fstream>

#include "daemon/fleet/config/profile_file.h"
#include "tools/lab/process/child_process.h"

namespace fineserve::integration {

void WritePlannedProfile(const std::string& model, uint32_t kv_token_bytes,
                         const std::string& folder, uint32_t ranks) {
  config::MeasuredProfile profile;
  profile.tp = ranks;
  profile.model = model;
  profile.url = "http://127.0.0.1:1";
  profile.chunk_tokens = 2048;
  profile.weight_bytes = 200 << 20;
  profile.kv_token_bytes = kv_token_bytes;
  profile.step = {7600, 16, 64};
  profile.decode_base_us = 7600;
  for (const uint32_t batch : {1, 8, 32}) {
    profile.points.push_back({batch, 64, 0.02 * batch, 0.1, 0, 0, 3});
  }
  std::ofstream(folder + "/" + model + ".toml") << config::ProfileText(profile);
}

stage::TomlKeys PlannedKeys(const std::string& model, double rate) {
  const auto expected = stage::TomlValue::InlineTable(
      {{"rate", rate}, {"prompt_tokens", 50}, {"output_tokens", 20}});
  return {{"slo_ttft_ms", 3000},
          {"max_batch", 24},
          {"profile", model + ".toml"},
          {"expected", expected}};
}

std::vector<std::string> PlannedCommand(const std::string& tinyserve,
                                        const std::string& model) {
  return process::Words(tinyserve + " --model " + model +
                        " --port {port} --max-model-len 1024 "
                        "--max-num-seqs 24 --page 64KiB");
}

}  // namespace fineserve::integration
