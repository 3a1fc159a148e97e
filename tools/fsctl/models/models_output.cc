#include "tools/fsctl/models/models_output.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/terminal/clean_text.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;

uint64_t Rejected(const wire::ModelFiguresT& m) {
  return m.rejected_deadline + m.rejected_too_long + m.rejected_no_engine +
         m.rejected_queue_full;
}

// Returns the share of requests whose first token came in time: "97.10 %"; "-"
// before the first request.
std::string Attained(const wire::ModelFiguresT& m) {
  const uint64_t all = m.on_time + m.late + Rejected(m);
  return all == 0 ? "-"
                  : Percent(static_cast<double>(m.on_time) /
                            static_cast<double>(all));
}

Span State(const wire::EngineFiguresT& e) {
  if (!e.heard) return {"unknown", Color::kYellow};
  if (e.stopped) return {"stopped", Color::kYellow};
  if (!e.serves && e.on_request) return {"on request", Color::kNone};
  if (!e.serves && e.scaled) return {"scaled away", Color::kNone};
  if (!e.serves) return {"down", Color::kRed};
  if (e.drains) return {"draining", Color::kYellow};
  return {"serving", Color::kGreen};
}

// "-" if it is negative.
std::string Milliseconds(double ms) {
  return ms < 0 ? "-" : absl::StrFormat("%.0f", ms);
}

// "1024 of 4096"; "1024 of any" if the daemon knows no limit.
std::string KvCell(const wire::EngineFiguresT& e) {
  constexpr uint64_t kUnlimited = uint64_t{1} << 39;
  if (e.kv_tokens >= kUnlimited) return absl::StrCat(e.held_tokens, " of any");
  return absl::StrCat(e.held_tokens, " of ", e.kv_tokens);
}

// Returns warnings for the operator, one per line; empty if there are none.
std::string Warnings(const wire::ModelsT& models) {
  std::string lines;
  if (models.refused_connections != 0) {
    absl::StrAppend(&lines, "warning: ", models.refused_connections,
                    " connections of other machines were refused: their keys "
                    "are not trusted, or they take this machine for another; "
                    "see fsctl keys --help\n");
  }
  const bool is_unheard = std::any_of(
      models.models.begin(), models.models.end(), [](const auto& m) {
        return std::any_of(m->engines.begin(), m->engines.end(),
                           [](const auto& e) { return !e->heard; });
      });
  if (is_unheard) {
    absl::StrAppend(&lines,
                    "warning: no fineserve-proxy is connected, so it is not "
                    "known which engines serve\n");
  }
  if (models.unscheduled != 0) {
    absl::StrAppend(&lines, "warning: ", models.unscheduled,
                    " requests were admitted unscheduled, while no fineserved "
                    "answered the proxy\n");
  }
  for (const auto& m : models.models) {
    for (const auto& e : m->engines) {
      for (const std::string& trouble : e->troubles) {
        absl::StrAppend(&lines, "warning: engine ", e->name, ": ", trouble,
                        "\n");
      }
    }
  }
  return lines.empty() ? lines : "\n" + lines;
}

// Null if it is negative.
Json Known(double number) { return number < 0 ? Json() : Json(number); }

Json EngineJson(const wire::EngineFiguresT& e) {
  return {{"name", e.name},
          {"serves", e.heard ? Json(e.serves) : Json()},
          {"drains", e.drains},
          {"on_request", e.on_request},
          {"scaled", e.scaled},
          {"stopped", e.stopped},
          {"running", e.running},
          {"most_running", e.most_running},
          {"most_tokens", e.most_tokens},
          {"kappa", e.kappa},
          {"kv_tokens", e.kv_tokens},
          {"held_tokens", e.held_tokens},
          {"backlog_tokens", e.backlog_tokens},
          {"dropped_bytes", e.dropped_bytes},
          {"lender_pid", e.lender_pid},
          {"dropped_s", Known(e.dropped_s)},
          {"reads_us", e.reads_us},
          {"keeps_weights", e.keeps_weights},
          {"troubles", e.troubles}};
}

Json ModelJson(const wire::ModelFiguresT& m) {
  Json json = {{"name", m.name},
               {"slo_ttft_ms", m.slo_ttft_ms},
               {"queued", m.queued},
               {"degraded", m.degraded},
               {"queued_tokens", m.queued_tokens},
               {"admitted", m.admitted},
               {"cancelled", m.cancelled},
               {"rejected",
                {{"deadline", m.rejected_deadline},
                 {"too_long", m.rejected_too_long},
                 {"no_engine", m.rejected_no_engine},
                 {"queue_full", m.rejected_queue_full}}},
               {"ttft_p50_ms", Known(m.ttft_p50_ms)},
               {"ttft_p99_ms", Known(m.ttft_p99_ms)},
               {"on_time", m.on_time},
               {"late", m.late},
               {"engines", Json::array()}};
  for (const auto& e : m.engines) json["engines"].push_back(EngineJson(*e));
  return json;
}

// Says which engines read whose weights, and why an engine whose model has a
// queue reads none.
std::string WeightsText(const wire::ModelsT& models) {
  std::string lines;
  for (const auto& m : models.models) {
    for (const auto& e : m->engines) {
      if (e->dropped_bytes != 0) {
        const std::string added = AddedText(*e);
        absl::StrAppend(&lines, ReadsText(*e), added.empty() ? "" : ", which ",
                        added, "\n");
      } else if (m->queued != 0 && !e->keeps_weights.empty()) {
        absl::StrAppend(&lines, e->name,
                        " keeps its weights: ", e->keeps_weights, "\n");
      }
    }
  }
  return lines.empty() ? lines : "\n" + lines;
}

}  // namespace

std::string ReadsText(const wire::EngineFiguresT& engine) {
  return absl::StrCat(
      engine.name, " reads ", Size(engine.dropped_bytes), " of weights from ",
      engine.lender_pid == 0 ? "another replica"
                             : absl::StrCat("pid ", engine.lender_pid),
      engine.dropped_s < 0 ? ""
                           : absl::StrFormat(" for %.0f s", engine.dropped_s));
}

std::string AddedText(const wire::EngineFiguresT& engine) {
  return engine.reads_us > 0
             ? absl::StrFormat("adds %.1f ms to a step", engine.reads_us / 1000)
             : "";
}

std::string ModelsText(const wire::ModelsT& models, bool color,
                       const FormerPools& former) {
  TextTable by_model({"MODEL", ">SLO ms", ">P50 ms", ">P99 ms", ">QUEUED",
                      ">TOKENS", ">ADMITTED", ">REJECTED", ">CANCELLED",
                      ">ON TIME", ">LATE", ">ATTAINED"});
  TextTable by_engine({"ENGINE", "MODEL", "STATE", ">RUNNING", ">MOST",
                       ">KAPPA", ">KV TOKENS HELD", ">BACKLOG"});
  for (const auto& m : models.models) {
    by_model.Add({m->name, absl::StrCat(m->slo_ttft_ms),
                  Milliseconds(m->ttft_p50_ms), Milliseconds(m->ttft_p99_ms),
                  absl::StrCat(m->queued), absl::StrCat(m->queued_tokens),
                  absl::StrCat(m->admitted), absl::StrCat(Rejected(*m)),
                  absl::StrCat(m->cancelled), absl::StrCat(m->on_time),
                  absl::StrCat(m->late), Attained(*m)});
    for (const auto& e : m->engines) {
      by_engine.Add({e->name, m->name, State(*e), absl::StrCat(e->running),
                     absl::StrCat(e->most_running),
                     absl::StrFormat("%.2f", e->kappa), KvCell(*e),
                     absl::StrCat(e->backlog_tokens)});
    }
  }
  std::string orphans = FormerPoolsText(former);
  if (!orphans.empty()) orphans = Paint(color, Color::kRed, orphans) + "\n";
  return absl::StrCat("policy  ", models.policy, "\n\n", by_model.Render(color),
                      "\n", by_engine.Render(color), WeightsText(models),
                      Warnings(models), orphans);
}

std::string ModelsJson(const wire::ModelsT& models, const FormerPools& former) {
  Json json = {{"policy", models.policy},
               {"unscheduled", models.unscheduled},
               {"refused_connections", models.refused_connections},
               {"models", Json::array()}};
  for (const auto& m : models.models) json["models"].push_back(ModelJson(*m));
  json["former_pools"] = FormerPoolsJson(former);
  return JsonText(json);
}

std::string RequestsText(const wire::RequestsT& requests, bool color) {
  TextTable table({"MODEL", "ENGINE", ">PROMPT", ">AGE ms", ">SLACK ms", "ID"});
  for (const auto& r : requests.requests) {
    const Span engine = !r->engine.empty() ? Span(r->engine)
                        : r->degraded ? Span("waiting, degraded", Color::kRed)
                                      : Span("waiting", Color::kYellow);
    table.Add({r->model, engine, absl::StrCat(r->prompt_tokens),
               absl::StrCat(r->age_ms),
               r->slack_ms == INT64_MAX ? "-" : absl::StrCat(r->slack_ms),
               r->id.empty() ? "-" : Clean(r->id)});
  }
  std::string text = table.Render(color);
  if (requests.requests.size() < requests.total) {
    absl::StrAppend(&text, requests.total - requests.requests.size(),
                    " more; list them with: fsctl requests --most ",
                    requests.total, "\n");
  }
  return text;
}

std::string RequestsJson(const wire::RequestsT& requests) {
  Json json = {{"total", requests.total}, {"requests", Json::array()}};
  for (const auto& r : requests.requests) {
    json["requests"].push_back(
        {{"id", r->id},
         {"model", r->model},
         {"engine", r->engine.empty() ? Json() : Json(r->engine)},
         {"degraded", r->degraded},
         {"prompt_tokens", r->prompt_tokens},
         {"age_ms", r->age_ms},
         {"slack_ms", r->slack_ms == INT64_MAX ? Json() : Json(r->slack_ms)}});
  }
  return JsonText(json);
}

namespace {

void Add(const wire::ModelFiguresT& more, wire::ModelFiguresT* sum) {
  sum->queued += more.queued;
  sum->degraded += more.degraded;
  sum->queued_tokens += more.queued_tokens;
  sum->admitted += more.admitted;
  sum->cancelled += more.cancelled;
  sum->rejected_deadline += more.rejected_deadline;
  sum->rejected_too_long += more.rejected_too_long;
  sum->rejected_no_engine += more.rejected_no_engine;
  sum->rejected_queue_full += more.rejected_queue_full;
  sum->on_time += more.on_time;
  sum->late += more.late;
  // Shows the slowest of several daemons, since quantiles cannot be added.
  sum->ttft_p50_ms = std::max(sum->ttft_p50_ms, more.ttft_p50_ms);
  sum->ttft_p99_ms = std::max(sum->ttft_p99_ms, more.ttft_p99_ms);
}

void AddEngines(std::vector<std::unique_ptr<wire::EngineFiguresT>>* from,
                wire::ModelFiguresT* to) {
  std::set<std::string> known;
  for (const auto& engine : to->engines) known.insert(engine->name);
  for (auto& engine : *from) {
    if (known.insert(engine->name).second) {
      to->engines.push_back(std::move(engine));
    }
  }
}

}  // namespace

wire::ModelsT Merged(std::vector<wire::ModelsT> answers) {
  wire::ModelsT sum = std::move(answers.front());
  for (size_t i = 1; i < answers.size(); ++i) {
    sum.unscheduled = std::max(sum.unscheduled, answers[i].unscheduled);
    sum.refused_connections += answers[i].refused_connections;
    for (auto& model : answers[i].models) {
      const auto same = std::find_if(
          sum.models.begin(), sum.models.end(),
          [&](const auto& known) { return known->name == model->name; });
      if (same == sum.models.end()) {
        sum.models.push_back(std::move(model));
        continue;
      }
      Add(*model, same->get());
      AddEngines(&model->engines, same->get());
    }
  }
  return sum;
}

wire::RequestsT Merged(std::vector<wire::RequestsT> answers) {
  wire::RequestsT sum = std::move(answers.front());
  for (size_t i = 1; i < answers.size(); ++i) {
    sum.total += answers[i].total;
    for (auto& request : answers[i].requests) {
      sum.requests.push_back(std::move(request));
    }
  }
  std::stable_sort(
      sum.requests.begin(), sum.requests.end(),
      [](const auto& a, const auto& b) { return a->slack_ms < b->slack_ms; });
  return sum;
}

wire::DoneT Merged(std::vector<wire::DoneT>) { return {}; }

}  // namespace fineserve::fsctl
