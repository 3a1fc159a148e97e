#include "daemon/proxy/request/routes.h"

#include <algorithm>
#include <climits>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/proxy/request/engine_paths.h"

namespace fineserve::proxy {
namespace {

constexpr absl::string_view kModelsPath = "/v1/models";
constexpr absl::string_view kCompletionsPath = "/v1/completions";
constexpr absl::string_view kChatPath = "/v1/chat/completions";
constexpr absl::string_view kMessagesPath = "/v1/messages";
constexpr absl::string_view kResponsesPath = "/v1/responses";
constexpr absl::string_view kMetricsPath = "/metrics";
constexpr absl::string_view kRequestsPath = "/requests";
constexpr absl::string_view kUsagesPath = "/usage";
constexpr absl::string_view kLogsPath = "/logs/";

struct Path {
  absl::string_view path;
  Route route;
};

// The paths that vLLM's server offers to clients, as of 0.32.0.
constexpr Path kPaths[] = {
    {"/health", Route::kHealth},
    {"/live", Route::kHealth},
    {"/ready", Route::kReady},
    {"/version", Route::kVersion},
    {kModelsPath, Route::kModels},
    {"/v1/usage", Route::kUsage},
    {kCompletionsPath, Route::kAdmitted},
    {kChatPath, Route::kAdmitted},
    {"/v1/chat/completions/batch", Route::kAdmitted},
    {kResponsesPath, Route::kAdmitted},
    {kMessagesPath, Route::kAdmitted},
    {"/v1/audio/transcriptions", Route::kAdmitted},
    {"/v1/audio/translations", Route::kAdmitted},
    {"/v1/audio/speech", Route::kAdmitted},
    {"/v1/systemone", Route::kAdmitted},
    {"/cohere/v2/chat", Route::kAdmitted},
    {"/inference/v1/generate", Route::kAdmitted},
    {"/generative_scoring", Route::kAdmitted},
    {"/invocations", Route::kAdmitted},
    {"/v1/embeddings", Route::kForwarded},
    {"/v2/embed", Route::kForwarded},
    {"/pooling", Route::kForwarded},
    {"/classify", Route::kForwarded},
    {"/score", Route::kForwarded},
    {"/v1/score", Route::kForwarded},
    {"/rerank", Route::kForwarded},
    {"/v1/rerank", Route::kForwarded},
    {"/v2/rerank", Route::kForwarded},
    {"/tokenize", Route::kForwarded},
    {"/detokenize", Route::kForwarded},
    {"/tokenizer_info", Route::kForwarded},
    {"/v1/messages/count_tokens", Route::kForwarded},
    {"/v1/messages/render", Route::kForwarded},
    {"/v1/responses/render", Route::kForwarded},
    {"/v1/completions/render", Route::kForwarded},
    {"/v1/completions/derender", Route::kForwarded},
    {"/v1/chat/completions/render", Route::kForwarded},
    {"/v1/chat/completions/derender", Route::kForwarded},
    {"/cohere/v2/chat/render", Route::kForwarded},
};

absl::string_view PathOf(absl::string_view target) {
  return target.substr(0, target.find('?'));
}

// Returns `text` in a form for error messages, since a client's bytes may be
// anything.
std::string Shown(absl::string_view text) {
  return absl::CHexEscape(text.substr(0, 200));
}

// Returns the JSON object of a model. `parent`: the model of an adapter, as
// vLLM lists it; empty: not an adapter.
std::string ModelObject(absl::string_view name, absl::string_view parent = "") {
  return absl::StrCat(
      "{\"id\":", JsonQuote(name),
      ",\"object\":\"model\",\"created\":0,\"owned_by\":\"fineserve\"",
      parent.empty() ? "" : absl::StrCat(",\"parent\":", JsonQuote(parent)),
      "}");
}

ApiError NoSuchModel(absl::string_view name) {
  return ClientError(
      404, "model_not_found",
      absl::StrCat("The model `", name, "` does not exist; see /v1/models."));
}

}  // namespace

Route RouteOf(Port port, absl::string_view target,
              const config::OtherPaths& others) {
  const absl::string_view path = PathOf(target);
  for (const Path& known : kPaths) {
    if (path != known.path) continue;
    const bool everywhere =
        known.route <= Route::kVersion || port == Port::kPublic;
    return everywhere ? known.route : Route::kUnknown;
  }
  if (port == Port::kAdmin) {
    if (path == kMetricsPath) return Route::kMetrics;
    if (path == kRequestsPath || absl::StartsWith(path, "/requests/")) {
      return Route::kRequests;
    }
    if (path == kUsagesPath) return Route::kUsages;
    if (absl::StartsWith(path, kLogsPath)) return Route::kLog;
    if (path == "/") return Route::kPage;
    return path == "/frames" ? Route::kFrames : Route::kUnknown;
  }
  if (absl::StartsWith(path, "/v1/models/")) return Route::kModels;
  if (!ResponseIdOf(target).empty()) return Route::kResponse;
  const bool forwards = absl::StartsWith(path, "/") && path != kMetricsPath &&
                        IsPassedOn(path, others);
  return forwards ? Route::kForwarded : Route::kUnknown;
}

absl::string_view ResponseIdOf(absl::string_view target) {
  absl::string_view path = PathOf(target);
  if (!absl::ConsumePrefix(&path, kResponsesPath) ||
      !absl::ConsumePrefix(&path, "/")) {
    return "";
  }
  return path.substr(0, path.find('/'));
}

std::string EngineOfLog(absl::string_view target) {
  return PercentDecoded(absl::StripPrefix(PathOf(target), kLogsPath));
}

bool IsTokenizable(absl::string_view target) {
  const absl::string_view path = PathOf(target);
  return path == kCompletionsPath || path == kChatPath;
}

bool IsAnthropic(absl::string_view target) {
  absl::string_view path = PathOf(target);
  return absl::ConsumePrefix(&path, kMessagesPath) &&
         (path.empty() || path[0] == '/');
}

absl::string_view MethodsOf(Route route) {
  switch (route) {
    case Route::kAdmitted:
      return "POST, OPTIONS";
    case Route::kForwarded:
    case Route::kResponse:
    case Route::kUnknown:
      return "";
    default:
      return "GET, HEAD, OPTIONS";
  }
}

absl::optional<ApiError> RefuseByHead(Route route, absl::string_view method,
                                      absl::string_view target) {
  if (route == Route::kUnknown) {
    return ClientError(404, "not_found",
                       absl::StrCat("no such path: ", Shown(PathOf(target))));
  }
  if (GoesToEngine(route) && !IsPlainPath(PathOf(target))) {
    return ClientError(
        400, "bad_path",
        absl::StrCat("empty or dot segments, or an encoded slash, in the path ",
                     Shown(PathOf(target))));
  }
  const absl::string_view methods = MethodsOf(route);
  for (const absl::string_view allowed : absl::StrSplit(methods, ", ")) {
    if (methods.empty() || method == allowed) return absl::nullopt;
  }
  return ClientError(405, "method_not_allowed",
                     absl::StrCat("this path takes ", methods));
}

std::shared_ptr<const Client> Routes::ClientOf(
    const RequestParser& request) const {
  auto bearers = keys_.OfBearer(request.Field("authorization"));
  if (bearers != nullptr || !IsAnthropic(request.target())) return bearers;
  return keys_.Of(request.Field("x-api-key"));
}

const config::FleetModel* Routes::Model(absl::string_view name) const {
  for (const config::FleetModel& model : fleet_->models) {
    if (model.HasName(name)) return &model;
  }
  return nullptr;
}

const config::FleetEngine* Routes::Engine(absl::string_view name) const {
  return fleet_->Engine(name);
}

absl::variant<const config::FleetModel*, ApiError> Routes::ModelFor(
    const std::string& asked) const {
  if (const config::FleetModel* model = Model(asked)) return model;
  if (!asked.empty()) return NoSuchModel(asked);
  if (fleet_->models.size() == 1) return &fleet_->models[0];
  return ClientError(400, "model_missing",
                     "the request names no model; see /v1/models");
}

const config::FleetEngine* Routes::EngineInTurn(absl::string_view model,
                                                uint64_t turn,
                                                const Fitness& fitness) const {
  std::vector<const config::FleetEngine*> fittest;
  int most = INT_MIN;
  for (const config::FleetEngine& engine : fleet_->engines) {
    if (engine.model != model) continue;
    const int its = fitness(engine.name);
    if (its > most) fittest.clear();
    most = std::max(most, its);
    if (its == most) fittest.push_back(&engine);
  }
  return fittest.empty() ? nullptr : fittest[turn % fittest.size()];
}

std::vector<const config::FleetEngine*> Routes::EnginesToAsk(
    absl::string_view likeliest, const Serves& serves) const {
  std::vector<const config::FleetEngine*> engines;
  for (const config::FleetEngine& engine : fleet_->engines) {
    engines.push_back(&engine);
  }
  std::stable_partition(
      engines.begin(), engines.end(),
      [&](const auto* engine) { return serves(engine->name); });
  std::stable_partition(
      engines.begin(), engines.end(),
      [&](const auto* engine) { return engine->name == likeliest; });
  return engines;
}

LocalAnswer Routes::Models(absl::string_view target,
                           const Client& client) const {
  LocalAnswer answer;
  absl::string_view path = PathOf(target);
  if (path == kModelsPath) {
    std::vector<std::string> objects;
    for (const config::FleetModel& model : fleet_->models) {
      if (!client.MayAskFor(model.name)) continue;
      objects.push_back(ModelObject(model.name));
      for (const std::string& alias : model.aliases) {
        objects.push_back(ModelObject(alias));
      }
      for (const std::string& adapter : model.adapters) {
        objects.push_back(ModelObject(adapter, model.name));
      }
    }
    for (const config::OutsideModel& outside : fleet_->outside) {
      if (client.MayAskFor(outside.name)) {
        objects.push_back(ModelObject(outside.name));
      }
    }
    answer.body = absl::StrCat("{\"object\":\"list\",\"data\":[",
                               absl::StrJoin(objects, ","), "]}");
    return answer;
  }
  path.remove_prefix(kModelsPath.size() + 1);
  const std::string name = PercentDecoded(path);
  const config::FleetModel* const model = Model(name);
  const bool is_there = model != nullptr || fleet_->Outside(name) != nullptr;
  if (!is_there || !client.MayAskFor(model != nullptr ? model->name : name)) {
    return ErrorAnswer(NoSuchModel(Shown(name)));
  }
  const bool is_adapter = model != nullptr && model->IsAdapter(name);
  answer.body = ModelObject(name, is_adapter ? model->name : "");
  return answer;
}

}  // namespace fineserve::proxy
