#include "tools/fsctl/profile/batch_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace fineserve::fsctl {
namespace {

using openai::Answer;
using openai::Clock;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

const Clock::time_point kStart = Clock::time_point() + std::chrono::hours(1);

// Returns an answer with events every `step_ms`, the first one `first_ms` after
// the start.
Answer Stream(int first_ms, int step_ms, int events) {
  Answer answer;
  answer.status = 200;
  answer.prompt_tokens = 64;
  for (int i = 0; i < events; ++i) {
    answer.events.push_back(kStart + milliseconds(first_ms + i * step_ms));
  }
  answer.output_tokens = static_cast<uint32_t>(events);
  if (events > 0) answer.first_token = answer.events[0];
  answer.end = kStart + milliseconds(first_ms + events * step_ms);
  return answer;
}

std::string Trouble(const Answer& answer, absl::StatusCode code) {
  const absl::Status s = CheckAnswer(answer);
  EXPECT_EQ(s.code(), code) << s;
  return std::string(s.message());
}

TEST(BatchAnswersTest, StepIsMeasuredWhileAllGenerate) {
  // The first answer is slowed by the other prompts, and ends before the other
  // answers.
  Answer first = Stream(20, 50, 4);
  for (int i = 0; i < 20; ++i) {
    first.events.push_back(kStart + milliseconds(200 + 10 * i));
  }
  const auto sample = ReadAnswers(kStart, {first, Stream(200, 10, 40)});
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_DOUBLE_EQ(sample->ttft_s, 0.2);
  EXPECT_NEAR(sample->step_s, 0.010, 1e-9);
  EXPECT_EQ(sample->prompt_tokens, 64);
}

TEST(BatchAnswersTest, EventsOfSeveralTokensAreNotSteps) {
  Answer answer = Stream(20, 40, 20);
  answer.output_tokens = 80;
  const auto sample = ReadAnswers(kStart, {answer});
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_NEAR(sample->step_s, 0.010, 1e-9);
}

TEST(BatchAnswersTest, BatchThatWasQueuedIsNoBatch) {
  const auto sample =
      ReadAnswers(kStart, {Stream(20, 10, 30), Stream(400, 10, 30)});
  EXPECT_TRUE(absl::IsFailedPrecondition(sample.status())) << sample.status();
  EXPECT_THAT(std::string(sample.status().message()),
              HasSubstr("give smaller --batches"));
}

TEST(BatchAnswersTest, StreamHeldBackToItsEndIsNamed) {
  const auto sample = ReadAnswers(kStart, {Stream(20, 0, 30)});
  EXPECT_THAT(std::string(sample.status().message()),
              HasSubstr("all tokens came at once"));
}

TEST(BatchAnswersTest, MistakesAreNamedWithTheirFix) {
  Answer unheard;
  unheard.error = "cannot connect: Connection refused";
  EXPECT_THAT(Trouble(unheard, absl::StatusCode::kUnavailable),
              HasSubstr("Connection refused; does the engine run"));
  Answer refused;
  refused.error = "{\"error\": {\"message\": \"no model x\", \"code\": 404}}";
  refused.status = 404;
  EXPECT_THAT(Trouble(refused, absl::StatusCode::kNotFound),
              HasSubstr("HTTP 404: no model x; is this an engine's URL"));
  refused.status = 401;
  EXPECT_THAT(Trouble(refused, absl::StatusCode::kUnauthenticated),
              HasSubstr("--api-key-file"));
  refused.status = 429;
  EXPECT_THAT(Trouble(refused, absl::StatusCode::kUnavailable),
              HasSubstr("measure the engine itself"));
  Answer whole = Stream(0, 0, 0);
  whole.error = "the stream ended without [DONE]";
  EXPECT_THAT(Trouble(whole, absl::StatusCode::kUnimplemented),
              HasSubstr("did not stream"));
  Answer broken = Stream(20, 10, 5);
  broken.error = "the answer was cut off: end of stream";
  EXPECT_THAT(Trouble(broken, absl::StatusCode::kUnavailable),
              HasSubstr("broke off an answer (the answer was cut off"));
  broken.events.clear();  // after its head
  broken.is_cut = true;
  EXPECT_THAT(Trouble(broken, absl::StatusCode::kUnavailable),
              HasSubstr("broke off an answer (the answer was cut off"));
  Answer uncounted = Stream(20, 10, 30);
  uncounted.prompt_tokens = 0;
  EXPECT_THAT(Trouble(uncounted, absl::StatusCode::kUnimplemented),
              HasSubstr("stream_options.include_usage"));
}

TEST(ErrorMessageTest, KnowsTheShapesThatEnginesUse) {
  EXPECT_EQ(ErrorMessage("{\"error\":{\"message\":\"a\nb\"}}"),
            "{\"error\":"
            "{\"message\":\"a b\"}}")
      << "no JSON";
  EXPECT_EQ(ErrorMessage("{\"error\":{\"message\":\"a\\nb\"}}"), "a b");
  EXPECT_EQ(ErrorMessage("{\"message\":\"old vLLM\"}"), "old vLLM");
  EXPECT_EQ(ErrorMessage("{\"detail\":\"Not Found\"}"), "Not Found");
  EXPECT_EQ(ErrorMessage("{\"error\":\"plain\"}"), "plain");
  EXPECT_EQ(ErrorMessage("<html>"), "<html>");
  EXPECT_EQ(ErrorMessage(std::string(5000, 'x')).size(), 300u);
}

}  // namespace
}  // namespace fineserve::fsctl
