#include "bench/compare/compared_fleet.h"

#include "absl/strings/str_cat.h"
#include "tools/lab/process/toml_text.h"

namespace fineserve::bench {
namespace {

using Fleet = ComparedFleet;

// To fill a slab of 2 MiB on the emulated device: a memset by one core.
constexpr int kFillUs = 500;
// A word of four letters and a space (tools/openai/prompt.h).
constexpr int kBytesPerToken = 5;

std::string QuotedArgument(const char* name, const std::string& value) {
  return absl::StrCat(", ", process::Quoted(name), ", ",
                      process::Quoted(value));
}

std::string ModelText(const ComparedModel& model) {
  return absl::StrCat("[[model]]\nname = ", process::Quoted(model.name),
                      "\nslo_ttft_ms = ", 1000 * Fleet::kSlo.ttft_s,
                      "\nmax_batch = ", Fleet::kMostSequences,
                      "\nchunk_tokens = ", Fleet::kChunkTokens,
                      "\nblock_tokens = ", Fleet::kBlockTokens,
                      "\nprofile = { base_us = ", Fleet::kBaseUs,
                      ", per_token_us = ", Fleet::kTokenUs,
                      ", per_sequence_us = ", Fleet::kSequenceUs, " }\n");
}

// The engine reads only the KV that a token needs: the comparison is about
// time.
std::string CommandText(const ComparedModel& model, uint16_t port,
                        const std::string& program) {
  return absl::StrCat(
      "command = [", process::Quoted(program), ", \"--view\"",
      QuotedArgument("--model", model.name),
      QuotedArgument("--port", absl::StrCat(port)),
      QuotedArgument("--max-model-len", absl::StrCat(Fleet::kLongestTokens)),
      QuotedArgument(
          "--page", absl::StrCat(model.token_kib * Fleet::kBlockTokens, "KiB")),
      QuotedArgument("--block-tokens", absl::StrCat(Fleet::kBlockTokens)),
      QuotedArgument("--max-num-seqs", absl::StrCat(Fleet::kMostSequences)),
      QuotedArgument("--max-num-batched-tokens",
                     absl::StrCat(Fleet::kChunkTokens)),
      QuotedArgument("--checked-blocks", "0"),
      QuotedArgument("--step-base-us", absl::StrCat(Fleet::kBaseUs)),
      QuotedArgument("--step-token-us", absl::StrCat(Fleet::kTokenUs)),
      QuotedArgument("--step-sequence-us", absl::StrCat(Fleet::kSequenceUs)),
      "]\n");
}

}  // namespace

Gpus Fleet::GpusOf(const FleetShape& shape) {
  return {static_cast<int>(shape.gpus), /*memory_mib=*/192, kPoolMib, kSlabMib};
}

std::vector<std::string> Fleet::Models(const FleetShape& shape) {
  std::vector<std::string> names;
  for (size_t m = 0; m < shape.models; ++m) {
    names.emplace_back(kComparedModels[m].name);
  }
  return names;
}

std::vector<ComparedEngine> Fleet::Engines(const FleetShape& shape) {
  std::vector<ComparedEngine> engines;
  for (size_t m = 0; m < shape.models; ++m) {
    const ComparedModel& model = kComparedModels[m];
    engines.push_back({model.name, m, model.gpu});
    if (shape.placement == EnginePlacement::kOneEach) continue;
    for (size_t more = 1; more < shape.gpus; ++more) {
      engines.push_back({absl::StrCat(model.name, "-", more + 1), m,
                         (model.gpu + more) % shape.gpus});
    }
  }
  if (shape.placement != EnginePlacement::kOneQueue) return engines;
  for (ComparedEngine& engine : engines) engine.gpu = 0;
  return engines;
}

double Fleet::PrefillSeconds(uint32_t prompt_tokens) {
  const uint32_t steps = (prompt_tokens + kChunkTokens - 1) / kChunkTokens;
  return 1e-6 * (steps * kBaseUs + prompt_tokens * kTokenUs);
}

double Fleet::AnswerSeconds(workload::Lengths lengths) {
  return PrefillSeconds(lengths.input) +
         1e-6 * (lengths.output - 1) * (kBaseUs + kSequenceUs);
}

std::string Fleet::FleetText(const std::vector<std::string>& gpus,
                             uint16_t proxy_port,
                             const std::vector<uint16_t>& engine_ports,
                             const std::string& engine_program,
                             const FleetShape& shape) {
  std::string text = absl::StrCat(
      "[proxy]\nlisten = \"127.0.0.1:", proxy_port,
      "\"\nadmin = \"127.0.0.1:0\"\nwithout_daemon = \"fail_closed\"\n"
      "drain = 1\n");
  for (size_t m = 0; m < shape.models; ++m) {
    text += ModelText(kComparedModels[m]);
  }
  const std::vector<ComparedEngine> engines = Engines(shape);
  for (size_t e = 0; e < engines.size(); ++e) {
    const ComparedModel& model = kComparedModels[engines[e].model];
    absl::StrAppend(&text,
                    "[[engine]]\nname = ", process::Quoted(engines[e].name),
                    "\nmodel = ", process::Quoted(model.name),
                    "\nurl = \"http://127.0.0.1:", engine_ports[e],
                    "\"\ngpu = ", process::Quoted(gpus[engines[e].gpu]), "\n",
                    CommandText(model, engine_ports[e], engine_program));
    if (shape.placement == EnginePlacement::kOneQueue) {
      absl::StrAppend(&text, "cap = \"", kPoolMib, "MiB\"\n");
    }
  }
  return text;
}

std::string Fleet::SiteText(const sim::PathTimes& path,
                            const FleetShape& shape) {
  const bool is_one = shape.placement == EnginePlacement::kOneQueue;
  const size_t pool_mib = kPoolMib * (is_one ? shape.gpus : 1);
  std::string text = absl::StrCat(
      "source = \"tinyserve at real speed on emulated GPUs\"\n[gpu]\npool = \"",
      pool_mib, "MiB\"\nslab = \"", kSlabMib,
      "MiB\"\nplanes = 1\nfill_us = ", kFillUs, "\nslowdown = [1.0]\n",
      "[path]\nask_us = ", path.ask_us, "\nsend_us = ", path.send_us,
      "\nanswer_us = ", path.answer_us, "\n");
  for (size_t m = 0; m < shape.models; ++m) {
    const ComparedModel& model = kComparedModels[m];
    absl::StrAppend(&text, "[[model]]\nname = ", process::Quoted(model.name),
                    "\nkv_token_bytes = ", model.token_kib * 1024,
                    "\nlongest = ", kLongestTokens,
                    "\nbytes_per_token = ", kBytesPerToken, "\n");
  }
  return text;
}

}  // namespace fineserve::bench
