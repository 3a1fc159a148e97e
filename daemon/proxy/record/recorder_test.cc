#include "daemon/proxy/record/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace fineserve::proxy {
namespace {

void Serve(Recorder* recorder, const std::string& id) {
  auto life = recorder->Begin();
  life->id = id;
  recorder->End(std::move(life));
}

TEST(RecorderTest, KeepsTheNewestThatEnded) {
  Recorder recorder;
  recorder.Keep(2);
  for (const char* id : {"a", "b", "c"}) Serve(&recorder, id);
  EXPECT_EQ(recorder.ended(), 3u);
  EXPECT_EQ(recorder.oldest(), 1u);
  EXPECT_EQ(recorder.Ended(0), nullptr);
  EXPECT_EQ(recorder.Ended(1)->id, "b");
  EXPECT_EQ(recorder.Ended(2)->id, "c");
  EXPECT_EQ(recorder.Ended(3), nullptr);
  EXPECT_TRUE(absl::IsNotFound(recorder.Find("a").status()));
  EXPECT_EQ((*recorder.Find("c"))->id, "c");
}

TEST(RecorderTest, FindsWhatIsUnderWayUntilItEnds) {
  Recorder recorder;
  recorder.Keep(1);
  auto a = recorder.Begin(), b = recorder.Begin(), c = recorder.Begin();
  a->id = "a", b->id = "b", c->id = "c";
  EXPECT_EQ(recorder.under_way().size(), 3u);
  recorder.End(a);
  EXPECT_EQ(*recorder.Find("c"), c);
  recorder.End(c);
  EXPECT_EQ(*recorder.Find("b"), b);
  recorder.End(b);
  EXPECT_TRUE(recorder.under_way().empty());
  EXPECT_EQ(*recorder.Find("b"), b);
  EXPECT_TRUE(absl::IsNotFound(recorder.Find("a").status()));
}

TEST(RecorderTest, NewestOfOneIdIsFound) {
  Recorder recorder;
  recorder.Keep(4);
  for (const unsigned status : {500u, 200u}) {
    auto life = recorder.Begin();
    life->id = "a";
    life->status = status;
    recorder.End(std::move(life));
  }
  EXPECT_EQ((*recorder.Find("a"))->status, 200u);
  auto retried = recorder.Begin();
  retried->id = "a";
  EXPECT_EQ(*recorder.Find("a"), retried);
  recorder.End(retried);
}

TEST(RecorderTest, HowAnIdBeginsIsEnoughIfNoOtherDoesSo) {
  Recorder recorder;
  recorder.Keep(4);
  for (const char* id : {"60", "60", "601", "7f"}) Serve(&recorder, id);
  EXPECT_EQ((*recorder.Find("7"))->id, "7f");
  EXPECT_EQ((*recorder.Find("60"))->id, "60") << "it is one itself";
  EXPECT_TRUE(absl::IsInvalidArgument(recorder.Find("6").status()));
  EXPECT_TRUE(absl::IsNotFound(recorder.Find("0").status()));
}

TEST(RecorderTest, NothingIsKeptWithoutAReader) {
  Recorder recorder;
  EXPECT_FALSE(recorder.on());
  EXPECT_EQ(recorder.Begin(), nullptr);
  const ManualClock clock;
  Recording recording(&recorder, &clock);
  recording.Begin();
  EXPECT_FALSE(recording.begun());
  recording.life()->tokens_out = 7;  // to be written to all the same
  Recording another(&recorder, &clock);
  EXPECT_EQ(another.life()->tokens_out, 0u);
  EXPECT_EQ(recording.life()->tokens_out, 7u);
}

TEST(RecorderTest, FollowersAndTheTracerHearOfEachEnd) {
  Recorder recorder;
  recorder.Keep(2);
  std::vector<std::string> traced;
  recorder.SetOnEnd([&](const auto& life) { traced.push_back(life->id); });
  int news = 0;
  Recorder::Follower follower = [&] { ++news; };
  recorder.Follow(&follower);
  Serve(&recorder, "a");
  recorder.Unfollow(&follower);
  Serve(&recorder, "b");
  EXPECT_EQ(news, 1);
  EXPECT_THAT(traced, testing::ElementsAre("a", "b"));
}

TEST(RecorderTest, UnendedLifeEndsAsClientGone) {
  Recorder recorder;
  recorder.Keep(1);
  ManualClock clock;
  clock.AdvanceNs(5);
  {
    Recording recording(&recorder, &clock);
    recording.Begin();
    clock.AdvanceNs(2);
  }
  EXPECT_EQ(recorder.Ended(0)->ending, Ending::kClientLeft);
  EXPECT_EQ(recorder.Ended(0)->arrived_ns, 5u);
  EXPECT_EQ(recorder.Ended(0)->ended_ns, 7u);
}

}  // namespace
}  // namespace fineserve::proxy
