#include "tools/fsctl/profile/batch_run.h"

#include <signal.h>

#include <boost/asio/co_spawn.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "tools/fsctl/profile/batch_answers.h"
#include "tools/openai/prompt.h"

namespace fineserve::fsctl {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kPatience{120};  // for a whole answer

}  // namespace

BatchRun::BatchRun(Subject subject, uint64_t seed)
    : subject_(std::move(subject)),
      next_prompt_(seed),
      client_(&context_, subject_.target, kPatience, /*notes_events=*/true),
      signals_(context_, SIGINT, SIGTERM) {
  signals_.async_wait([this](const auto& error, int) {
    if (error) return;
    interrupted_ = true;
    context_.stop();
  });
}

absl::StatusOr<std::vector<openai::Answer>> BatchRun::Send(
    uint32_t batch, uint32_t words, uint32_t output_tokens) {
  std::vector<openai::Answer> answers(batch);
  std::vector<std::string> bodies;
  for (uint32_t i = 0; i < batch; ++i) {
    bodies.push_back(openai::Body(subject_.model, words, output_tokens,
                                  next_prompt_++, subject_.chat));
  }
  uint32_t left = batch;
  sent_ = openai::Clock::now();
  for (uint32_t i = 0; i < batch; ++i) {
    asio::co_spawn(context_, client_.Post(std::move(bodies[i]), {}),
                   [this, &left, out = &answers[i]](const std::exception_ptr&,
                                                    openai::Answer answer) {
                     *out = std::move(answer);
                     if (--left == 0) context_.stop();
                   });
  }
  context_.restart();
  context_.run();  // the signals' wait alone would keep it running
  if (interrupted_) {
    return absl::CancelledError("interrupted; no profile was written");
  }
  return answers;
}

absl::StatusOr<Sample> BatchRun::Run(uint32_t batch, uint32_t words,
                                     uint32_t output_tokens) {
  const auto answers = Send(batch, words, output_tokens);
  if (!answers.ok()) return answers.status();
  return ReadAnswers(sent_, *answers);
}

absl::StatusOr<CountedPrompt> BatchRun::Count(uint32_t words) {
  const auto answers = Send(1, words, 2);
  if (!answers.ok()) return answers.status();
  if (const absl::Status s = CheckAnswer(answers->front()); !s.ok()) return s;
  return CountedPrompt{words, answers->front().prompt_tokens};
}

}  // namespace fineserve::fsctl
