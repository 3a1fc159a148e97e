#include "tools/fsctl/plan/what_if.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/contract/abi/byte_size.h"

namespace fineserve::fsctl {
namespace {

constexpr int kMostGpus = 1 << 16;

absl::Status Bad(const std::string& text, const std::string& trouble) {
  return absl::InvalidArgumentError(
      absl::StrCat("--what-if ", text, ": ", trouble));
}

plan::ModelDemand* Find(plan::Snapshot* s, const std::string& name) {
  for (plan::ModelDemand& m : s->models) {
    if (m.name == name) return &m;
  }
  return nullptr;
}

absl::Status SetRate(const std::string& text, plan::Snapshot* s) {
  const std::vector<std::string> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  const std::string name(absl::StripPrefix(parts[0], "rate:"));
  plan::ModelDemand* model = Find(s, name);
  if (model == nullptr) return Bad(text, "there is no such model");
  const std::string value = parts.size() == 2 ? parts[1] : "";
  const bool times = absl::EndsWith(value, "x");
  double number = 0;
  if (!absl::SimpleAtod(absl::StripSuffix(value, "x"), &number) ||
      !std::isfinite(number) || number <= 0) {
    return Bad(text, "write a rate like 2x, or 3.5 for requests/s");
  }
  model->rate = times ? model->rate * number : number;
  return absl::OkStatus();
}

absl::Status ChangeGpus(const std::string& text, plan::Snapshot* s) {
  int change = 0;
  if (!absl::SimpleAtoi(absl::StripPrefix(text, "gpus="), &change) ||
      change == 0 || change > kMostGpus) {
    return Bad(text, "write how many more or fewer, like -1 or +2");
  }
  std::sort(
      s->gpus.begin(), s->gpus.end(),
      [](const plan::Gpu& a, const plan::Gpu& b) { return a.name < b.name; });
  if (change <= -static_cast<int>(s->gpus.size())) {
    return Bad(text, absl::StrCat("there are only ", s->gpus.size()));
  }
  if (change < 0) s->gpus.resize(s->gpus.size() + change);
  const plan::Gpu last = s->gpus.back();
  for (int i = 1; i <= change; ++i) {
    s->gpus.push_back(last);
    s->gpus.back().name = absl::StrCat(last.name, "+", i);
  }
  return absl::OkStatus();
}

absl::Status SetHost(const std::string& text, plan::Snapshot* s) {
  const std::string size(absl::StripPrefix(text, "host="));
  uint64_t bytes = 0;
  if (!abi::ParseByteSize(size.c_str(), &bytes) || bytes == 0) {
    return Bad(text, "write a size like 512GiB");
  }
  std::set<std::string> names;
  for (const plan::Gpu& gpu : s->gpus) names.insert(gpu.node);
  s->nodes.clear();
  for (const std::string& name : names) {
    s->nodes.push_back({name, static_cast<double>(bytes)});
  }
  return absl::OkStatus();
}

absl::Status AddModel(const std::string& text, plan::Snapshot* s) {
  const plan::ModelDemand* like =
      Find(s, std::string(absl::StripPrefix(text, "add:")));
  if (like == nullptr) return Bad(text, "there is no such model to copy");
  plan::ModelDemand more = *like;
  absl::StrAppend(&more.name, "-more");
  s->models.push_back(more);
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyWhatIf(const std::string& text, plan::Snapshot* snapshot) {
  if (absl::StartsWith(text, "rate:")) return SetRate(text, snapshot);
  if (absl::StartsWith(text, "gpus=")) return ChangeGpus(text, snapshot);
  if (absl::StartsWith(text, "host=")) return SetHost(text, snapshot);
  if (absl::StartsWith(text, "add:")) return AddModel(text, snapshot);
  return Bad(text, "write rate:MODEL=2x, gpus=-1, host=512GiB or add:MODEL");
}

}  // namespace fineserve::fsctl
