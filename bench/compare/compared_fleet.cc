#include "bench/compare/compared_fleet.h"

#include "absl/strings/str_cat.h"
#include "tools/lab/process/child_process.h"

namespace fineserve::bench {
namespace {

using Fleet = ComparedFleet;

// Time to fill a slab of 2 MiB on the emulated device, by a memset on one core.
constexpr int kFillUs = 500;
// A word of four letters and a space (tools/openai/prompt.h).
constexpr int kBytesPerToken = 5;

// Upper bound on the memory that leaves the GPU with an engine: its weights, of
// which tinyserve rounds four tensors up to whole granules, and a workspace of
// 4 MiB.
uint32_t ResidentMib(const FleetShape& shape) { return shape.weights_mib + 8; }
// An engine's context and 1 MiB of small tensors, which stay; the daemon's
// memory outside the pool; and the scratch of a view.
constexpr uint32_t kStaysMib = 2, kDaemonMib = 4, kScratchMib = 2;

// The engine reads only the KV that a token needs, since the comparison is
// about time.
std::vector<std::string> CommandOf(const ComparedModel& model, uint16_t port,
                                   const std::string& program,
                                   const FleetShape& shape) {
  std::vector<std::string> words = process::Words(
      absl::StrCat(program, " --view --model ", model.name, " --port ", port,
                   " --max-model-len ", Fleet::kLongestTokens, " --page ",
                   model.token_kib * Fleet::kBlockTokens, "KiB --block-tokens ",
                   Fleet::kBlockTokens, " --max-num-seqs ",
                   Fleet::kMostSequences, " --max-num-batched-tokens ",
                   Fleet::kChunkTokens, " --checked-blocks 0 --step-base-us ",
                   Fleet::kBaseUs, " --step-token-us ", Fleet::kTokenUs,
                   " --step-sequence-us ", Fleet::kSequenceUs));
  if (!shape.evicts()) return words;
  // The emulated device needs one contiguous piece for an allocation, and soon
  // has none that is larger than a slab between slabs. A GPU maps scattered
  // pages.
  return process::With(
      words, {"--weights", absl::StrCat(shape.weights_mib, "MiB"), "--tensor",
              absl::StrCat(Fleet::kSlabMib, "MiB")});
}

uint32_t SharedMib(const FleetShape& shape) {
  return Fleet::kPoolMib + Fleet::kPresent * ResidentMib(shape) +
         Fleet::kHeadroomMib;
}

}  // namespace

Gpus Fleet::GpusOf(const FleetShape& shape) {
  const int gpus = static_cast<int>(shape.gpus);
  if (!shape.evicts()) return {gpus, /*memory_mib=*/192, kPoolMib, kSlabMib};
  const auto engines = static_cast<uint32_t>(shape.models / shape.gpus);
  return {gpus, SharedMib(shape) + engines * kStaysMib + kDaemonMib,
          /*pool_mib=*/0, kSlabMib,
          absl::StrCat("--headroom ", kHeadroomMib, "MiB --reserve ",
                       kPresent * ResidentMib(shape), "MiB")};
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

stage::FleetText Fleet::Text(const std::vector<std::string>& gpus,
                             uint16_t proxy_port,
                             const std::vector<uint16_t>& engine_ports,
                             const std::string& engine_program,
                             const FleetShape& shape) {
  stage::FleetText text;
  text.Proxy({{"without_daemon", "fail_closed"}, {"drain", 1}}, proxy_port);
  for (size_t m = 0; m < shape.models; ++m) {
    text.Model(kComparedModels[m].name,
               {{"slo_ttft_ms", 1000 * kSlo.ttft_s},
                {"max_batch", kMostSequences},
                {"chunk_tokens", kChunkTokens},
                {"block_tokens", kBlockTokens},
                {"profile",
                 stage::TomlValue::Profile(kBaseUs, kTokenUs, kSequenceUs)}});
  }
  const std::vector<ComparedEngine> engines = Engines(shape);
  for (size_t e = 0; e < engines.size(); ++e) {
    const ComparedModel& model = kComparedModels[engines[e].model];
    stage::TomlKeys keys = {
        {"gpu", gpus[engines[e].gpu]},
        {"command", CommandOf(model, engine_ports[e], engine_program, shape)}};
    if (shape.evicts()) keys.emplace_back("evict", "auto");
    if (shape.placement == EnginePlacement::kOneQueue) {
      keys.emplace_back("cap", absl::StrCat(kPoolMib, "MiB"));
    }
    text.Engine(engines[e].name, model.name, engine_ports[e], keys);
  }
  return text;
}

std::string Fleet::SiteText(const sim::PathTimes& path, const FleetShape& shape,
                            const MoveTimes& moves) {
  const bool is_one = shape.placement == EnginePlacement::kOneQueue;
  const size_t pool_mib = kPoolMib * (is_one ? shape.gpus : 1);
  stage::FleetText text;
  text.Append("source = \"tinyserve at real speed on emulated GPUs\"\n");
  text.Table("[gpu]", {{"memory", absl::StrCat(SharedMib(shape), "MiB")},
                       {"pool", absl::StrCat(pool_mib, "MiB")},
                       {"slab", absl::StrCat(kSlabMib, "MiB")},
                       {"planes", 1},
                       {"fill_us", kFillUs}});
  text.Append("slowdown = [1.0]\n");
  text.Table("[path]", {{"ask_us", path.ask_us},
                        {"send_us", path.send_us},
                        {"answer_us", path.answer_us}});
  for (size_t m = 0; m < shape.models; ++m) {
    const ComparedModel& model = kComparedModels[m];
    stage::TomlKeys keys = {{"kv_token_bytes", model.token_kib * 1024},
                            {"longest", kLongestTokens},
                            {"bytes_per_token", kBytesPerToken}};
    if (shape.evicts()) {
      keys.emplace_back("weights", absl::StrCat(moves.bytes >> 20, "MiB"));
    }
    text.Model(model.name, keys);
  }
  if (shape.evicts()) {
    text.Table("[eviction]",
               {{"headroom", absl::StrCat(kHeadroomMib, "MiB")},
                {"scratch", absl::StrCat(kScratchMib, "MiB")},
                {"link_per_s", static_cast<double>(moves.bytes) / moves.back_s},
                {"leave_us", 1e6 * moves.leave_s}});
  }
  return text.text();
}

}  // namespace fineserve::bench
