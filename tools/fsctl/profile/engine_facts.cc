#include "tools/fsctl/profile/engine_facts.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace fineserve::fsctl {
namespace {

std::vector<ServedModel> ModelsOf(const std::string& body) {
  std::vector<ServedModel> models;
  const auto json = nlohmann::json::parse(body, nullptr, false);
  const auto list = json.is_object() ? json.find("data") : json.end();
  if (!json.is_object() || list == json.end() || !list->is_array()) return {};
  for (const auto& one : *list) {
    if (!one.is_object() || !one.contains("id") || !one["id"].is_string()) {
      continue;
    }
    ServedModel model{one["id"].get<std::string>()};
    const auto most = one.find("max_model_len");
    if (most != one.end() && most->is_number_unsigned()) {
      model.most_tokens = most->get<uint32_t>();
    }
    models.push_back(std::move(model));
  }
  return models;
}

std::string Names(const std::vector<ServedModel>& models) {
  return absl::StrJoin(models, ", ",
                       [](std::string* out, const ServedModel& m) {
                         absl::StrAppend(out, m.name);
                       });
}

// Returns the sum of the metric's values over its labels; nullopt if there is
// no such metric.
absl::optional<double> SumOf(absl::string_view metrics,
                             absl::string_view name) {
  absl::optional<double> sum;
  for (const absl::string_view line : absl::StrSplit(metrics, '\n')) {
    if (!absl::StartsWith(line, name)) continue;
    const absl::string_view rest = line.substr(name.size());
    if (!absl::StartsWith(rest, "{") && !absl::StartsWith(rest, " ")) continue;
    double value = 0;
    if (absl::SimpleAtod(rest.substr(rest.rfind(' ') + 1), &value)) {
      sum = sum.value_or(0) + value;
    }
  }
  return sum;
}

}  // namespace

absl::StatusOr<ServedModel> ChooseModel(const openai::Page& page,
                                        const std::string& wanted) {
  if (page.status == 401 || page.status == 403) {
    return absl::UnauthenticatedError(
        absl::StrCat("the engine wants an API key (HTTP ", page.status,
                     "); give the file that holds it with --api-key-file"));
  }
  const std::vector<ServedModel> models = ModelsOf(page.body);
  if (page.status != 200 || models.empty()) {
    if (!wanted.empty()) return ServedModel{wanted};
    return absl::NotFoundError(
        absl::StrCat("GET /v1/models does not name a model (HTTP ", page.status,
                     "); is this an engine's URL? If so, give --model"));
  }
  if (wanted.empty() && models.size() == 1) return models[0];
  const auto found =
      std::find_if(models.begin(), models.end(),
                   [&](const ServedModel& m) { return m.name == wanted; });
  if (found != models.end()) return *found;
  return absl::NotFoundError(
      wanted.empty()
          ? absl::StrCat("it serves several models; choose with --model: ",
                         Names(models))
          : absl::StrCat("it does not serve \"", wanted,
                         "\"; it serves: ", Names(models)));
}

absl::optional<double> RequestsInside(absl::string_view metrics) {
  const auto running = SumOf(metrics, "vllm:num_requests_running");
  if (!running) return absl::nullopt;
  return *running + SumOf(metrics, "vllm:num_requests_waiting").value_or(0);
}

uint32_t WordRate::WordsFor(uint32_t tokens) const {
  const double words = std::round((tokens - fixed_tokens) / tokens_a_word);
  return static_cast<uint32_t>(std::clamp(words, 1.0, 1e7));
}

WordRate RateOf(CountedPrompt a, CountedPrompt b) {
  WordRate rate;
  rate.tokens_a_word =
      (double{1} * b.tokens - a.tokens) / (double{1} * b.words - a.words);
  // If an engine truncates prompts or counts them oddly, assumes one token per
  // word.
  if (!(rate.tokens_a_word > 0)) return {};
  rate.fixed_tokens = a.tokens - rate.tokens_a_word * a.words;
  return rate;
}

}  // namespace fineserve::fsctl
