// A model moves from one GPU to the other while it gets requests: real daemons,
// fsctl up, proxy and engines.

#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/types/optional.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/socket.h"
#include "tests/integration/planning/planning_site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

class PlanningTest : public PlanningSite {
 protected:
  void ExpectNothingLost() {
    EXPECT_EQ(Count(Ending::kWrong), 0);
    EXPECT_EQ(Count(Ending::kRefused), 0);
    EXPECT_EQ(Count(Ending::kBadGateway), 0);
    EXPECT_EQ(Count(Ending::kErrorEvent), 0);
    EXPECT_EQ(Count(Ending::kCut), 0);
  }
};

TEST_F(PlanningTest, EachModelComesUpOnOneGpu) {
  StartAll();
  const auto plan = See();
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->states.size(), size_t{kModels * kGpus});
  const Finished shown = Fsctl({"plan"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("led by " + plan->leader));
  const Finished history = Fsctl({"plan", "--history"});
  EXPECT_EQ(history.code, 0) << history.err;
  EXPECT_THAT(history.out, HasSubstr("serve"));
}

TEST_F(PlanningTest, BusyNeighboursAreSeparatedAndNoRequestFails) {
  StartAll();
  const Neighbours they = FindNeighbours();
  BeginLoads(they.a, they.b);
  EXPECT_TRUE(process::BecomesTrue(
      [&] {
        const auto plan = See();
        if (!plan) return false;
        for (int model = 0; model < kModels; ++model) {
          EXPECT_GE(ServingGpu(*plan, model), 0) << "without an engine";
        }
        return ServingGpu(*plan, they.a) != ServingGpu(*plan, they.b);
      },
      kConvergence))
      << Fsctl({"plan"}).out;
  EXPECT_TRUE(Settles()) << Fsctl({"plan"}).out;
  const auto plan = See();
  ASSERT_TRUE(plan);
  EXPECT_NE(ServingGpu(*plan, they.a), ServingGpu(*plan, they.b));
  EndLoads();
  EXPECT_GT(Count(Ending::kRight), 0);
  ExpectNothingLost();
}

TEST_F(PlanningTest, FrozenPlanLetsNothingMoveUntilItIsThawed) {
  StartAll();
  ASSERT_EQ(Fsctl({"plan", "--freeze"}).code, 0);
  const Neighbours they = FindNeighbours();
  BeginLoads(they.a, they.b);
  // Waits for twice the window and the cool-down.
  EXPECT_FALSE(process::BecomesTrue(
      [&] {
        const auto plan = See();
        return plan && In(*plan, "start");
      },
      std::chrono::seconds(8)));
  ASSERT_EQ(Fsctl({"plan", "--thaw"}).code, 0);
  EXPECT_TRUE(AwaitState("start")) << Fsctl({"plan"}).out;
  EXPECT_TRUE(Settles()) << Fsctl({"plan"}).out;
  EndLoads();
  ExpectNothingLost();
}

TEST_F(PlanningTest, PinnedModelMovesToItsGpu) {
  StartAll();
  const auto before = See();
  ASSERT_TRUE(before);
  const int to = 1 - ServingGpu(*before, 0);
  ASSERT_TRUE(OrderMove(0, to));
  EXPECT_TRUE(process::BecomesTrue(
      [&] {
        const auto plan = See();
        return plan && ServingGpu(*plan, 0) == to;
      },
      kConvergence))
      << Fsctl({"plan"}).out;
  EXPECT_TRUE(Settles()) << Fsctl({"plan"}).out;
  const Finished wrong = Fsctl({"plan", "--pin", "a=GPU-nobody"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("GPU-nobody"));
}

class RestingPlacesTest : public PlanningTest {
 protected:
  bool PlacesRest() const override { return true; }

  void MoveFirstModelTo(int gpu) {
    ASSERT_TRUE(OrderMove(0, gpu));
    EXPECT_TRUE(process::BecomesTrue(
        [&] {
          const auto plan = See();
          return plan && ServingGpu(*plan, 0) == gpu && !In(*plan, "retire");
        },
        kConvergence))
        << Fsctl({"plan"}).out;
  }
  // Asks the GPU's daemon for its report, as the leader does.
  wire::ReportT ReportOf(int gpu) {
    auto socket = wire::ClientSocket::Connect(
        finding::AdmissionPath(folder() + "/run/" + gpus_[gpu] + ".sock"));
    if (!socket.ok()) return {};
    absl::optional<std::string> answer;
    const std::string ask = wire::Encode(0, 0, wire::PlanNoticeT());
    EXPECT_TRUE(Eventually([&] { return socket->Send(ask); }));
    EXPECT_TRUE(Eventually([&] {
      answer = socket->Receive();
      return answer.has_value();
    }));
    auto message = wire::Decode(answer.value_or(""));
    wire::ReportT* report = message.ok() ? message->body.AsReport() : nullptr;
    return report == nullptr ? wire::ReportT() : std::move(*report);
  }
  // True if the GPU's daemon reports a process of the first model that may
  // leave the GPU, or has left it, and the host memory that the process takes.
  bool ReportsProcess(int gpu) {
    const wire::ReportT report = ReportOf(gpu);
    return report.host_bytes > 0 &&
           std::any_of(report.engines.begin(), report.engines.end(),
                       [&](const auto& engine) {
                         return engine->name == EngineName({0, gpu}) &&
                                engine->here && engine->process_bytes > 0;
                       });
  }
  // Returns how many bytes of the first model's engine are off the GPU.
  double AwayOn(int gpu) {
    const std::string json =
        Fsctl({"--gpu", gpus_[gpu], "engines", "--json"}).out;
    for (int i = 0;; ++i) {
      const std::string engine = "/engines/" + std::to_string(i);
      const std::string name = JsonText(json, engine + "/name");
      if (name.empty()) return 0;
      if (name != EngineName({0, gpu})) continue;
      return atof(JsonAt(json, engine + "/memory/evicted_bytes").c_str());
    }
  }
};

TEST_F(RestingPlacesTest, ModelThatMovesBackDoesNotStartAgain) {
  StartAll();
  const auto before = See();
  ASSERT_TRUE(before);
  const int first = ServingGpu(*before, 0), other = 1 - first;
  const pid_t pid = PidOf({0, first});
  BeginLoads(0, 1);
  MoveFirstModelTo(other);
  EXPECT_TRUE(
      process::BecomesTrue([&] { return AwayOn(first) > 0; }, kConvergence))
      << "its memory leaves";
  EXPECT_TRUE(Eventually([&] { return ReportsProcess(first); }));
  EXPECT_THAT(Fsctl({"plan"}).out, HasSubstr("off, rests"));
  MoveFirstModelTo(first);
  EXPECT_TRUE(process::BecomesTrue(
      [&] { return AwayOn(other) > 0 && AwayOn(first) == 0; }, kConvergence));
  EndLoads();
  EXPECT_TRUE(Settles()) << Fsctl({"plan"}).out;
  EXPECT_EQ(PidOf({0, first}), pid);
  EXPECT_GT(Count(Ending::kRight), 0);
  ExpectNothingLost();
}

// The host has memory for the four processes of a move, but not for anything in
// the store.
class FullHostTest : public RestingPlacesTest {
 protected:
  int HostGib() const override { return 4; }
};

TEST_F(FullHostTest, PlaceThatIsOffEndsInsteadOfResting) {
  StartAll();
  const auto before = See();
  ASSERT_TRUE(before);
  const int first = ServingGpu(*before, 0);
  const pid_t pid = PidOf({0, first});
  BeginLoads(0, 1);
  MoveFirstModelTo(1 - first);
  EXPECT_TRUE(process::BecomesTrue(
      [&] {
        return PidOf({0, first}) == 0;
      },
      kConvergence))
      << Fsctl({"plan"}).out;
  MoveFirstModelTo(first);
  EndLoads();
  EXPECT_TRUE(Settles()) << Fsctl({"plan"}).out;
  EXPECT_NE(PidOf({0, first}), pid);
  EXPECT_GT(Count(Ending::kRight), 0);
  ExpectNothingLost();
}

}  // namespace
}  // namespace fineserve::integration
