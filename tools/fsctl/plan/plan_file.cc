#include "tools/fsctl/plan/plan_file.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/fleet/config/profile_file.h"
#include "daemon/fleet/config/toml_keys.h"

namespace fineserve::config {
namespace {

constexpr uint32_t kMostGpus = 1 << 16;
constexpr uint32_t kMostPlanCount = 1 << 20;
constexpr double kMillis = 1e-3;

Setter Gpus(const std::string& path, plan::Snapshot* s) {
  return Sections("gpu", [=](const toml::node& node) {
    plan::Gpu gpu;
    uint64_t memory = 0, taken = 0, pool = 0;
    uint32_t count = 0;
    absl::Status read =
        Section(path, {{"name", Text(&gpu.name)},
                       {"node", Text(&gpu.node)},
                       {"memory", ByteSize(&memory)},
                       {"taken", ByteSize(&taken)},
                       {"pool", ByteSize(&pool)},
                       {"count", Count(&count, 1, kMostGpus)}})(node);
    if (!read.ok()) return read;
    gpu.memory_bytes = static_cast<double>(memory);
    gpu.taken_bytes = static_cast<double>(taken);
    gpu.pool_bytes = static_cast<double>(pool);
    const std::string name = gpu.name;
    for (uint32_t i = 0; i < count; ++i) {
      gpu.name = absl::StrCat(name, "-", i);
      s->gpus.push_back(gpu);
    }
    if (count == 0) s->gpus.push_back(gpu);
    return absl::OkStatus();
  });
}

Setter Nodes(const std::string& path, plan::Snapshot* s) {
  return Sections("node", [=](const toml::node& node) {
    s->nodes.emplace_back();
    uint64_t host = 0;
    const absl::Status read =
        Section(path, {{"name", Text(&s->nodes.back().name)},
                       {"host", ByteSize(&host)}})(node);
    s->nodes.back().host_bytes = static_cast<double>(host);
    return read;
  });
}

// Checks the snapshot. Also rejects a node without a GPU, since its name is
// most likely mistyped.
absl::Status Check(const plan::Snapshot& s) {
  for (const plan::Node& node : s.nodes) {
    const bool known = std::any_of(
        s.gpus.begin(), s.gpus.end(),
        [&node](const plan::Gpu& gpu) { return gpu.node == node.name; });
    if (known) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "node \"", node.name, "\": no GPU is on it; mend its name"));
  }
  return plan::CheckSnapshot(s);
}

Setter Groups(std::vector<std::vector<std::string>>* groups) {
  return List("a list of lists of GPUs, like [[\"gpu-0\", \"gpu-1\"]]",
              [groups](const toml::node& node) {
                return Texts(&groups->emplace_back())(node);
              });
}

// [batch, prompt tokens, TTFT, TPOT].
Setter Points(std::vector<plan::OperatingPoint>* points) {
  return List(
      "a list like [[1, 256, 0.012, 0.008]]", [points](const toml::node& node) {
        std::vector<double> numbers;
        const absl::Status read = List("a list like [1, 256, 0.012, 0.008]",
                                       [&numbers](const toml::node& number) {
                                         numbers.emplace_back();
                                         return Amount(&numbers.back())(number);
                                       })(node);
        if (!read.ok()) return read;
        if (numbers.size() != 4 || numbers[0] > kMostPlanCount ||
            numbers[1] > kMostPlanCount) {
          return WrongType("batch, prompt tokens, TTFT and TPOT");
        }
        points->push_back({static_cast<uint32_t>(numbers[0]),
                           static_cast<uint32_t>(numbers[1]), numbers[2],
                           numbers[3]});
        return absl::OkStatus();
      });
}

plan::Profile Measured(const MeasuredProfile& file) {
  plan::Profile p = {file.architecture,
                     file.quantisation,
                     file.tp,
                     file.weight_bytes,
                     file.activation_bytes,
                     static_cast<double>(file.kv_token_bytes),
                     {}};
  for (const ProfilePoint& point : file.points) {
    p.points.push_back(
        {point.batch, point.prompt_tokens, point.ttft_s, point.step_s});
  }
  return p;
}

// Fills in what the plan file itself leaves out.
void TakeMissing(plan::Profile file, plan::Profile* p) {
  if (p->architecture.empty()) p->architecture = std::move(file.architecture);
  if (p->quantisation.empty()) p->quantisation = std::move(file.quantisation);
  if (p->tp == 0) p->tp = file.tp;
  if (p->weight_bytes == 0) p->weight_bytes = file.weight_bytes;
  if (p->activation_bytes == 0) p->activation_bytes = file.activation_bytes;
  if (p->kv_token_bytes == 0) p->kv_token_bytes = file.kv_token_bytes;
  if (p->points.empty()) p->points = std::move(file.points);
}

Setter Profiles(const std::string& path, plan::Snapshot* s) {
  return Sections("profile", [=](const toml::node& node) {
    plan::Profile p, file;
    p.tp = 0;
    uint64_t weights = 0, activations = 0;
    const Setter from_file = ProfileKey(
        path, "file",
        [&file](const std::string&, const MeasuredProfile& measured) {
          file = Measured(measured);
        });
    const absl::Status read =
        Section(path, {{"file", from_file},
                       {"architecture", Text(&p.architecture)},
                       {"quantisation", Text(&p.quantisation)},
                       {"tp", Count(&p.tp, 1, kMostPlanCount)},
                       {"weights", ByteSize(&weights)},
                       {"activations", ByteSize(&activations)},
                       {"kv_token_bytes", Amount(&p.kv_token_bytes)},
                       {"points", Points(&p.points)}})(node);
    if (!read.ok()) return read;
    p.weight_bytes = static_cast<double>(weights);
    p.activation_bytes = static_cast<double>(activations);
    TakeMissing(std::move(file), &p);
    s->profiles.push_back(std::move(p));
    return absl::OkStatus();
  });
}

Setter Models(const std::string& path, plan::Snapshot* s) {
  return Sections("model", [=](const toml::node& node) {
    plan::ModelDemand m;
    uint64_t floor = 0, context = 0, process = 0;
    const absl::Status read =
        Section(path, {{"name", Text(&m.name)},
                       {"architecture", Text(&m.architecture)},
                       {"quantisation", Text(&m.quantisation)},
                       {"tp", Count(&m.tp, 1, kMostPlanCount)},
                       {"rate", Amount(&m.rate)},
                       {"prompt_tokens", Amount(&m.prompt_tokens)},
                       {"output_tokens", Amount(&m.output_tokens)},
                       {"slo_ttft_ms", Amount(&m.slo_ttft_s)},
                       {"slo_tpot_ms", Amount(&m.slo_tpot_s)},
                       {"floor", ByteSize(&floor)},
                       {"max_batch", Count(&m.max_batch, 1, kMostPlanCount)},
                       {"replicas", Count(&m.replicas, 1, kMostPlanCount)},
                       {"may_share", Flag(&m.may_share)},
                       {"pins", Texts(&m.pins)},
                       {"groups", Groups(&m.groups)},
                       {"context", ByteSize(&context)},
                       {"process", ByteSize(&process)},
                       {"may_rest", Flag(&m.may_rest)}})(node);
    if (!read.ok()) return read;
    m.floor_bytes = static_cast<double>(floor);
    m.context_bytes = static_cast<double>(context);
    m.process_bytes = static_cast<double>(process);
    m.slo_ttft_s *= kMillis;
    m.slo_tpot_s *= kMillis;
    s->models.push_back(std::move(m));
    return absl::OkStatus();
  });
}

Setter PlacedNow(const std::string& path, plan::Snapshot* s) {
  return Sections("placed", [=](const toml::node& node) {
    s->current.emplace_back();
    plan::Placed& placed = s->current.back();
    return Section(path, {{"model", Text(&placed.model)},
                          {"gpus", Texts(&placed.gpus)}})(node);
  });
}

}  // namespace

absl::StatusOr<plan::Snapshot> ReadPlanFile(const std::string& path) {
  plan::Snapshot s;
  absl::Status read = ReadToml(path, {{"gpu", Gpus(path, &s)},
                                      {"node", Nodes(path, &s)},
                                      {"profile", Profiles(path, &s)},
                                      {"model", Models(path, &s)},
                                      {"placed", PlacedNow(path, &s)}});
  if (!read.ok()) return read;
  if (const absl::Status bad = Check(s); !bad.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", std::string(bad.message())));
  }
  return s;
}

}  // namespace fineserve::config
