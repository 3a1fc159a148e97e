#include "tools/fsctl/profile/batch_answers.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace fineserve::fsctl {
namespace {

using openai::Answer;
using openai::Clock;

// Fewer steps do not make a mean.
constexpr auto kLeastSteps = 8;
constexpr size_t kMostMessageBytes = 300;

double Seconds(Clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

absl::Status Refused(const Answer& answer) {
  const std::string why = ErrorMessage(answer.error);
  switch (answer.status) {
    case 401:
    case 403:
      return absl::UnauthenticatedError(
          absl::StrCat("the engine wants an API key (HTTP ", answer.status,
                       "); give the file that holds it with --api-key-file"));
    case 404:
      return absl::NotFoundError(absl::StrCat(
          "HTTP 404: ", why,
          "; is this an engine's URL, and --model a name that it serves?"));
    case 429:
    case 503:
      return absl::UnavailableError(
          absl::StrCat("it sheds load (HTTP ", answer.status, ": ", why,
                       "); measure the engine itself, not a proxy before it"));
    default:
      return absl::UnavailableError(absl::StrCat(
          "HTTP ", answer.status, ": ", why, "; see the engine's log"));
  }
}

}  // namespace

std::string ErrorMessage(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  std::string message = body;
  if (json.is_object()) {
    const auto error = json.find("error");
    const auto& holder =
        error != json.end() && error->is_object() ? *error : json;
    for (const char* key : {"message", "detail", "error"}) {
      const auto found = holder.find(key);
      if (found != holder.end() && found->is_string()) {
        message = found->get<std::string>();
        break;
      }
    }
  }
  if (message.size() > kMostMessageBytes) message.resize(kMostMessageBytes);
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return message;
}

absl::Status CheckAnswer(const Answer& answer) {
  if (answer.status == 0) {
    return absl::UnavailableError(absl::StrCat(
        answer.error, "; does the engine run, and is the URL right?"));
  }
  if (answer.status != 200) return Refused(answer);
  if (answer.events.empty() && !answer.is_cut) {
    return absl::UnimplementedError(
        "the engine did not stream its answer; a profile needs the time of "
        "each token, so start it with streaming (\"stream\": true)");
  }
  if (!answer.error.empty()) {
    return absl::UnavailableError(
        absl::StrCat("the engine broke off an answer (", answer.error,
                     "); see its log, and start it again"));
  }
  if (answer.prompt_tokens != 0) return absl::OkStatus();
  return absl::UnimplementedError(
      "the engine counts no tokens (stream_options.include_usage), so the "
      "length of a prompt is not known; use an engine that does");
}

absl::StatusOr<Sample> ReadAnswers(Clock::time_point start,
                                   const std::vector<Answer>& answers) {
  const Answer* last = nullptr;
  Clock::time_point first_end = Clock::time_point::max();
  double prompt_tokens = 0;
  uint32_t shortest = UINT32_MAX;
  for (const Answer& answer : answers) {
    if (const absl::Status s = CheckAnswer(answer); !s.ok()) return s;
    if (last == nullptr || answer.first_token > last->first_token) {
      last = &answer;
    }
    first_end = std::min(first_end, answer.events.back());
    prompt_tokens += answer.prompt_tokens;
    shortest = std::min(shortest, answer.output_tokens);
  }
  if (last == nullptr) return absl::InternalError("no answers");
  const auto end =
      std::upper_bound(last->events.begin(), last->events.end(), first_end);
  const auto steps = end - last->events.begin() - 1;
  if (steps < kLeastSteps) {
    return absl::FailedPreconditionError(absl::StrCat(
        "an answer ended, after ", shortest,
        " tokens, before all had begun: the engine queues such a batch (its KV "
        "or its most sequences), or stops early; give smaller --batches"));
  }
  // One event may carry several tokens, and a chat has one further event for
  // the role.
  const double tokens_an_event =
      std::max(1.0, static_cast<double>(last->output_tokens) /
                        static_cast<double>(last->events.size()));
  Sample sample;
  sample.ttft_s = Seconds(last->first_token - start);
  sample.step_s = Seconds(*(end - 1) - last->first_token) /
                  static_cast<double>(steps) / tokens_an_event;
  sample.prompt_tokens = prompt_tokens / static_cast<double>(answers.size());
  if (sample.step_s > 0) return sample;
  return absl::UnimplementedError(
      "all tokens came at once: something between here and the engine holds "
      "its stream back; measure the engine itself");
}

}  // namespace fineserve::fsctl
