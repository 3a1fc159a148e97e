#include "daemon/proxy/trace/tracer.h"

#include <gtest/gtest.h>

namespace fineserve::proxy {
namespace {

constexpr char kField[] =
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-";

class TracerTest : public testing::Test {
 protected:
  Life Begin(const std::string& fields) {
    RequestParser request(1 << 14, 1 << 14);
    request.Feed("GET / HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n");
    Life life;
    tracer_.Begin(request, &life);
    return life;
  }

  Tracer tracer_;
};

TEST_F(TracerTest, ThereIsNoTraceUntilItIsTurnedOn) {
  EXPECT_EQ(Begin(kField + std::string("01\r\n")).trace_id, "");
}

TEST_F(TracerTest, ClientsTraceGoesOnWithASpanOfItsOwn) {
  tracer_.TurnOn(0);
  const Life life = Begin(kField + std::string("01\r\n"));
  EXPECT_EQ(life.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(life.parent_span_id, "00f067aa0ba902b7");
  EXPECT_EQ(life.span_id.size(), 16u);
  EXPECT_NE(life.span_id, life.parent_span_id);
}

TEST_F(TracerTest, ClientDecidesWhetherItsTraceIsSampled) {
  tracer_.TurnOn(0);
  EXPECT_TRUE(Begin(kField + std::string("01\r\n")).sampled);
  tracer_.TurnOn(1);
  EXPECT_FALSE(Begin(kField + std::string("00\r\n")).sampled);
}

TEST_F(TracerTest, WithoutAValidFieldATraceBegins) {
  tracer_.TurnOn(1);
  for (const char* fields : {"", "traceparent: wrong\r\n"}) {
    const Life life = Begin(fields);
    EXPECT_EQ(life.trace_id.size(), 32u);
    EXPECT_EQ(life.parent_span_id, "");
    EXPECT_TRUE(life.sampled);
  }
  EXPECT_NE(Begin("").trace_id, Begin("").trace_id);
}

TEST_F(TracerTest, RateSaysWhichPartOfTraceIdsIsSampled) {
  const std::string low = "ffffffffffffffffff01000000000000";
  const std::string high = "0000000000000000008fffffffffffff";
  EXPECT_FALSE(Tracer::Samples(0, low));
  EXPECT_TRUE(Tracer::Samples(0.01, low));
  EXPECT_FALSE(Tracer::Samples(0.5, high));
  EXPECT_TRUE(Tracer::Samples(0.6, high));
  EXPECT_TRUE(Tracer::Samples(1, std::string(32, 'f')));
}

TEST_F(TracerTest, SampledPartIsCloseToTheRate) {
  tracer_.TurnOn(0.25);
  int sampled = 0;
  for (int i = 0; i < 4000; ++i) sampled += Begin("").sampled;
  // The limits are six standard deviations on either side of 1000.
  EXPECT_GT(sampled, 835);
  EXPECT_LT(sampled, 1165);
}

}  // namespace
}  // namespace fineserve::proxy
