#include "daemon/fleet/door/fleet_holder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fineserve::apply {
namespace {

using ::testing::HasSubstr;
using Kind = Question::Kind;

config::FleetDescription FleetOf(const std::string& policy) {
  return {{"scheduler", {{"policy", policy}}}};
}

class FakeHolder : public FleetHolder {
 public:
  std::string path = "/fleet.toml";
  absl::StatusOr<config::FleetDescription> file = FleetOf("new");
  config::FleetDescription holds = FleetOf("old");
  absl::Status taking;
  double drain_s = -1;

 protected:
  void DescribeTo(Answer* answer) const override {
    answer->process = "fake";
    answer->fleet_path = path;
    answer->fleet = holds;
  }
  absl::StatusOr<config::FleetDescription> Read(
      std::vector<std::string>* notes) override {
    notes->push_back("a note");
    return file;
  }
  absl::Status TakeRead() override {
    if (taking.ok()) holds = *file;
    return taking;
  }
  void SetDrain(double seconds) override { drain_s = seconds; }
};

Question Of(Kind kind, const std::string& digest = "") {
  Question q;
  q.kind = kind;
  q.fleet_path = "/fleet.toml";
  q.digest = digest;
  q.seconds = 7;
  return q;
}

TEST(FleetHolderTest, CheckChangesNothing) {
  FakeHolder holder;
  const Answer answer = holder.Reply(Of(Kind::kCheck));
  EXPECT_EQ(answer.error, "");
  EXPECT_EQ(answer.notes, std::vector<std::string>{"a note"});
  EXPECT_EQ(answer.fleet, FleetOf("old"));
  EXPECT_EQ(holder.holds, FleetOf("old"));
}

TEST(FleetHolderTest, TakeUsesTheFileAndSaysSo) {
  FakeHolder holder;
  const Answer answer =
      holder.Reply(Of(Kind::kTake, config::DigestOf(FleetOf("new"))));
  EXPECT_EQ(answer.error, "");
  EXPECT_EQ(answer.fleet, FleetOf("new"));
  EXPECT_EQ(holder.drain_s, 7);
}

TEST(FleetHolderTest, FileThatCannotBeTakenLeavesAllAsItWas) {
  FakeHolder holder;
  holder.file = absl::InvalidArgumentError("fleet.toml:3: unknown key");
  for (const Kind kind : {Kind::kCheck, Kind::kTake}) {
    const Answer answer = holder.Reply(Of(kind));
    EXPECT_EQ(answer.error, "fleet.toml:3: unknown key");
    EXPECT_EQ(answer.fleet, FleetOf("old"));
  }
  EXPECT_EQ(holder.TakeAgain().message(), "fleet.toml:3: unknown key");
  EXPECT_EQ(holder.holds, FleetOf("old"));
}

TEST(FleetHolderTest, FileThatChangedBetweenCheckAndTakeIsNotTaken) {
  FakeHolder holder;
  const std::string digest = config::DigestOf(FleetOf("new"));
  EXPECT_EQ(holder.Reply(Of(Kind::kCheck, digest)).error, "");
  holder.file = FleetOf("newer");
  EXPECT_THAT(holder.Reply(Of(Kind::kTake, digest)).error,
              HasSubstr("the file has changed"));
  EXPECT_EQ(holder.holds, FleetOf("old"));
}

TEST(FleetHolderTest, AnotherFleetIsNotItsBusiness) {
  FakeHolder holder;
  holder.path = "/another.toml";
  EXPECT_THAT(holder.Reply(Of(Kind::kTake)).error,
              HasSubstr("another fleet file, /another.toml"));
  holder.path = "";
  EXPECT_THAT(holder.Reply(Of(Kind::kTake)).error, HasSubstr("--fleet"));
  EXPECT_EQ(holder.holds, FleetOf("old"));
}

TEST(FleetHolderTest, HangupTakesTheFileAgain) {
  FakeHolder holder;
  EXPECT_TRUE(holder.TakeAgain().ok());
  EXPECT_EQ(holder.holds, FleetOf("new"));
}

TEST(FleetHolderTest, ItNamesChangesThatItCannotMake) {
  FakeHolder holder;
  EXPECT_EQ(holder.Reply(Of(Kind::kState)).error, "");
  EXPECT_THAT(holder.Reply(Of(Kind::kRestart)).error, HasSubstr("cannot"));
}

}  // namespace
}  // namespace fineserve::apply
