#include "daemon/scheduling/global/model/profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace fineserve::plan {
namespace {

// A step takes 10 ms + 0.5 ms a sequence, a prompt token 0.1 ms.
Profile LinearProfile() {
  Profile p{"m", "fp16", 1, 10e9, 1e9, 1e5, {}};
  for (const uint32_t batch : {1u, 4u, 16u}) {
    for (const uint32_t prompt : {100u, 300u}) {
      p.points.push_back(
          {batch, prompt, 1e-4 * batch * prompt, 0.01 + 0.0005 * batch});
    }
  }
  return p;
}

TEST(Profile, TtftIsOnTheLineThroughTheNearestLengths) {
  const Profile p = LinearProfile();
  EXPECT_NEAR(Ttft(p, 4, 100), 0.04, 1e-12);
  EXPECT_NEAR(Ttft(p, 4, 200), 0.08, 1e-12);
  EXPECT_NEAR(Ttft(p, 4, 1000), 0.4, 1e-12);
  Profile one = p;
  one.points = {{1, 100, 0.01, 0.01}};
  EXPECT_NEAR(Ttft(one, 1, 250), 0.025, 1e-12) << "one length: in proportion";
}

TEST(Profile, ALongerPromptNeverTakesLessTime) {
  Profile p = LinearProfile();
  p.points = {{1, 100, 0.03, 0.01}, {1, 300, 0.02, 0.01}};
  EXPECT_GE(Ttft(p, 1, 900), Ttft(p, 1, 300));
  EXPECT_GT(Ttft(p, 1, 10), 0);
}

TEST(Profile, RequestRateCountsPromptAndAnswer) {
  // 4 / (4 · 100 · 0.1 ms + 50 · 12 ms).
  EXPECT_NEAR(RequestRate(LinearProfile(), 4, 100, 50), 4 / (0.04 + 50 * 0.012),
              1e-9);
}

TEST(Profile, TokenTimeSpreadsThePromptOverTheAnswer) {
  const auto time = FitTokenTime(LinearProfile(), 200, 100);
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_NEAR(time->c0, 0.01, 1e-4);
  // 0.5 ms, and 200 prompt tokens of 0.1 ms, spread over 100 tokens of answer.
  EXPECT_NEAR(time->cd, 0.0005 + 200 * 1e-4 / 100, 1e-5);
}

TEST(Profile, ImpossibleFigureIsRefusedInOneLineWithTheFix) {
  struct Case {
    const char* name;
    void (*spoil)(Profile*);
  };
  const Case cases[] = {
      {"no weights", [](Profile* p) { p->weight_bytes = 0; }},
      {"weights that are no number",
       [](Profile* p) { p->weight_bytes = std::nan(""); }},
      {"infinite KV",
       [](Profile* p) {
         p->kv_token_bytes = std::numeric_limits<double>::infinity();
       }},
      {"negative activations", [](Profile* p) { p->activation_bytes = -1; }},
      {"TP 0", [](Profile* p) { p->tp = 0; }},
      {"a time of 0", [](Profile* p) { p->points[0].ttft_s = 0; }},
      {"no points", [](Profile* p) { p->points.clear(); }},
      {"one batch", [](Profile* p) { p->points.resize(2); }},
  };
  EXPECT_TRUE(CheckProfile(LinearProfile()).ok());
  for (const Case& c : cases) {
    Profile p = LinearProfile();
    c.spoil(&p);
    const absl::Status status = CheckProfile(p);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name;
    const std::string text(status.message());
    EXPECT_NE(text.find("m fp16, TP"), std::string::npos) << text;
    EXPECT_NE(text.find("measure it again"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace fineserve::plan
