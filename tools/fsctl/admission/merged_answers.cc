#include "tools/fsctl/admission/merged_answers.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace fineserve::fsctl {
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
  // The slowest of several daemons is shown: quantiles have no sum.
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
