#include "tools/lab/workload/rates.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/status/status.h"

namespace fineserve::workload {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kRatesHeader[] = "start_s,model,rate_rps,active_clients\n";

class RateShapesTest : public ::testing::Test {
 protected:
  RateShapesTest() : path_(testing::TempDir() + "rates_XXXXXX") {
    const int fd = mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    close(fd);
  }
  ~RateShapesTest() override { unlink(path_.c_str()); }

  absl::StatusOr<RateShapes> Read(const std::string& rows) {
    std::ofstream(path_) << kRatesHeader << rows;
    return ReadRateShapes(path_);
  }

  std::string path_;
};

TEST_F(RateShapesTest, EachModelHasARowWithAMeanOfOne) {
  const auto shapes =
      Read("0,chat,10,1\n0,code,5,1\n600,chat,30,1\n600,code,5,1\n");
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  ASSERT_EQ(shapes->size(), 2u);
  EXPECT_THAT(shapes->at("chat"), ElementsAre(0.5, 1.5));
  EXPECT_THAT(shapes->at("code"), ElementsAre(1, 1));
}

TEST_F(RateShapesTest, MistakeIsNamed) {
  const auto bad = Read("0,chat,many,1\n");
  EXPECT_TRUE(absl::IsDataLoss(bad.status()));
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("0,chat,many"));
  EXPECT_TRUE(absl::IsDataLoss(Read("").status()));
  EXPECT_TRUE(absl::IsNotFound(ReadRateShapes(path_ + "/none").status()));
}

// Returns the number of requests for the model from `from` to `to`.
size_t Between(const Trace& trace, uint32_t model, double from, double to) {
  size_t count = 0;
  for (const Arrival& a : trace.arrivals) {
    count += a.model == model && a.at_s >= from && a.at_s < to;
  }
  return count;
}

TEST(PoissonBySlotsTest, RatesChangeFromSlotToSlot) {
  Slots slots;
  slots.seconds = 100;
  slots.streams = {{{"a", 10}, {"b", 0}}, {{"a", 0}, {"b", 10}}};
  const Trace trace = PoissonBySlots(slots, 1000, {{3, 4}}, /*seed=*/1);
  EXPECT_THAT(trace.models, ElementsAre("a", "b"));
  EXPECT_NEAR(static_cast<double>(Between(trace, 0, 0, 100)), 1000, 150);
  EXPECT_EQ(Between(trace, 0, 100, 1000), 0u);
  EXPECT_EQ(Between(trace, 1, 0, 100), 0u);
  EXPECT_NEAR(static_cast<double>(Between(trace, 1, 100, 200)), 1000, 150);
}

TEST(PoissonBySlotsTest, NothingComesAfterTheEnd) {
  Slots slots;
  slots.seconds = 10;
  slots.streams.assign(10, {{"a", 10}});
  const Trace trace = PoissonBySlots(slots, 25, {{3, 4}}, /*seed=*/1);
  EXPECT_GT(Between(trace, 0, 20, 25), 0u);
  EXPECT_EQ(Between(trace, 0, 25, 100), 0u);
  EXPECT_LT(trace.seconds(), 25);
}

TEST(PoissonBySlotsTest, TheSeedDecides) {
  Slots slots;
  slots.seconds = 10;
  slots.streams.assign(3, {{"a", 10}});
  const auto last = [&](uint64_t seed) {
    return PoissonBySlots(slots, 30, {{3, 4}}, seed).seconds();
  };
  EXPECT_EQ(last(1), last(1));
  EXPECT_NE(last(1), last(9));
}

}  // namespace
}  // namespace fineserve::workload
