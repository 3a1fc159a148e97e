#include "daemon/fleet/door/message.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace fineserve::apply {
namespace {

using Json = nlohmann::json;
using Kind = Question::Kind;

constexpr const char* kKinds[] = {"state",   "check", "take",  "rest",
                                  "restart", "stop",  "start", "starts"};
// Limit on the nesting of JSON in a message; deeper input is not parsed.
constexpr int kMostDepth = 6;
constexpr double kLongestSeconds = 1e6;

std::string Text(const Json& json) {
  // Replaces bytes that are not UTF-8, because a path may have any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Parses the whole message; null if it is invalid.
absl::optional<Json> Parse(absl::string_view text) {
  if (text.size() > kMostBytes) return absl::nullopt;
  bool too_deep = false;
  const auto limit = [&](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > kMostDepth;
    return !too_deep;
  };
  Json json = Json::parse(text.begin(), text.end(), limit,
                          /*allow_exceptions=*/false);
  if (too_deep || !json.is_object()) return absl::nullopt;
  return json;
}

// A value of another type than expected counts as missing.
std::string TextAt(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>()
                                                   : std::string();
}

double NumberAt(const Json& json, const char* key) {
  const auto found = json.find(key);
  const double number =
      found != json.end() && found->is_number() ? found->get<double>() : 0;
  return std::isfinite(number) ? number : 0;
}

uint64_t CountAt(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_unsigned()
             ? found->get<uint64_t>()
             : 0;
}

std::vector<std::string> TextsAt(const Json& json, const char* key) {
  std::vector<std::string> texts;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return texts;
  for (const Json& one : *found) {
    if (one.is_string()) texts.push_back(one.get<std::string>());
  }
  return texts;
}

config::FleetDescription FleetAt(const Json& json, const char* key) {
  config::FleetDescription fleet;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) return fleet;
  for (const auto& [name, section] : found->items()) {
    if (!section.is_object()) continue;
    config::SectionDescription& read = fleet[name];
    for (const auto& [what, value] : section.items()) {
      if (value.is_string()) read[what] = value.get<std::string>();
    }
  }
  return fleet;
}

// `is_one` says whether a value is a T. Values of other types are left out.
template <typename T>
std::map<std::string, T> ValuesAt(const Json& json, const char* key,
                                  bool (Json::*is_one)() const noexcept) {
  std::map<std::string, T> values;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) return values;
  for (const auto& [name, value] : found->items()) {
    if ((value.*is_one)()) values[name] = value.template get<T>();
  }
  return values;
}

Json JsonOf(const EngineState& e) {
  return {{"name", e.name},         {"state", e.state},
          {"pid", e.pid},           {"starts", e.starts},
          {"for_s", e.for_s},       {"last_end", e.last_end},
          {"running", e.running},   {"waiting", e.waiting},
          {"idle_s", e.idle_s},     {"trouble", e.trouble},
          {"log_line", e.log_line}, {"log_path", e.log_path}};
}

EngineState EngineOf(const Json& json) {
  EngineState e;
  e.name = TextAt(json, "name");
  e.state = TextAt(json, "state");
  e.pid = static_cast<int64_t>(CountAt(json, "pid"));
  e.starts = CountAt(json, "starts");
  e.for_s = NumberAt(json, "for_s");
  e.last_end = TextAt(json, "last_end");
  e.running = CountAt(json, "running");
  e.waiting = CountAt(json, "waiting");
  if (json.contains("idle_s")) e.idle_s = NumberAt(json, "idle_s");
  e.trouble = TextAt(json, "trouble");
  e.log_line = TextAt(json, "log_line");
  e.log_path = TextAt(json, "log_path");
  return e;
}

}  // namespace

std::string Encode(const Question& q) {
  return Text({{"question", kKinds[static_cast<size_t>(q.kind)]},
               {"fleet_path", q.fleet_path},
               {"digest", q.digest},
               {"engines", q.engines},
               {"seconds", q.seconds},
               {"starts", q.starts},
               {"stopped", q.stopped}});
}

std::string Encode(const Answer& a) {
  Json engines = Json::array();
  for (const EngineState& engine : a.engines) engines.push_back(JsonOf(engine));
  Json json = {{"error", a.error},
               {"process", a.process},
               {"version", FINESERVE_VERSION},
               {"pid", a.pid},
               {"runs_s", a.runs_s},
               {"full_disk_s", a.full_disk_s},
               {"gpu", a.gpu},
               {"fleet_path", a.fleet_path},
               {"fleet", a.fleet},
               {"notes", a.notes},
               {"engines", std::move(engines)},
               {"daemons", a.daemons},
               {"away_s", a.away_s},
               {"unscheduled", a.unscheduled},
               {"admin", a.admin}};
  if (a.certificate_s) json["certificate_s"] = *a.certificate_s;
  return Text(json);
}

absl::StatusOr<Question> DecodeQuestion(absl::string_view text) {
  const absl::optional<Json> json = Parse(text);
  if (!json) return absl::InvalidArgumentError("not a question in JSON");
  const std::string kind = TextAt(*json, "question");
  const auto known = std::find(std::begin(kKinds), std::end(kKinds), kind);
  if (known == std::end(kKinds)) {
    return absl::InvalidArgumentError(
        absl::StrCat("this version knows no question \"", kind,
                     "\"; give fsctl and the processes one version"));
  }
  Question q;
  q.kind = static_cast<Kind>(known - std::begin(kKinds));
  q.fleet_path = TextAt(*json, "fleet_path");
  q.digest = TextAt(*json, "digest");
  q.engines = TextsAt(*json, "engines");
  q.seconds = std::clamp(NumberAt(*json, "seconds"), 0.0, kLongestSeconds);
  q.starts = ValuesAt<double>(*json, "starts", &Json::is_number);
  q.stopped = TextsAt(*json, "stopped");
  return q;
}

absl::StatusOr<Answer> DecodeAnswer(absl::string_view text) {
  const absl::optional<Json> json = Parse(text);
  if (!json || json->find("process") == json->end()) {
    return absl::InvalidArgumentError("not an answer in JSON");
  }
  Answer a;
  a.error = TextAt(*json, "error");
  a.process = TextAt(*json, "process");
  a.version = TextAt(*json, "version");
  a.pid = static_cast<int64_t>(CountAt(*json, "pid"));
  if (json->contains("runs_s")) a.runs_s = NumberAt(*json, "runs_s");
  if (json->contains("full_disk_s")) {
    a.full_disk_s = NumberAt(*json, "full_disk_s");
  }
  a.gpu = TextAt(*json, "gpu");
  a.fleet_path = TextAt(*json, "fleet_path");
  a.fleet = FleetAt(*json, "fleet");
  a.notes = TextsAt(*json, "notes");
  const auto engines = json->find("engines");
  if (engines != json->end() && engines->is_array()) {
    for (const Json& one : *engines) {
      if (one.is_object()) a.engines.push_back(EngineOf(one));
    }
  }
  a.daemons = ValuesAt<bool>(*json, "daemons", &Json::is_boolean);
  a.away_s = ValuesAt<double>(*json, "away_s", &Json::is_number);
  a.unscheduled = CountAt(*json, "unscheduled");
  a.admin = TextAt(*json, "admin");
  if (json->contains("certificate_s")) {
    a.certificate_s = NumberAt(*json, "certificate_s");
  }
  return a;
}

}  // namespace fineserve::apply
