#include "daemon/base/http/traceparent.h"

#include <gtest/gtest.h>

namespace fineserve::proxy {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kSpan[] = "00f067aa0ba902b7";

TEST(TraceparentTest, ReadsIdsAndTheSampledFlag) {
  const auto read = ParseTraceparent(
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->trace_id, kTrace);
  EXPECT_EQ(read->span_id, kSpan);
  EXPECT_TRUE(read->sampled);
}

TEST(TraceparentTest, OnlyTheLastBitOfTheFlagsSaysSampled) {
  const std::string begin = std::string("00-") + kTrace + "-" + kSpan + "-";
  EXPECT_FALSE(ParseTraceparent(begin + "00")->sampled);
  EXPECT_FALSE(ParseTraceparent(begin + "fe")->sampled);
  EXPECT_TRUE(ParseTraceparent(begin + "0b")->sampled);
}

TEST(TraceparentTest, LaterVersionMayGoOnBehindADash) {
  const std::string rest = std::string("-") + kTrace + "-" + kSpan + "-01";
  EXPECT_TRUE(ParseTraceparent("cc" + rest).has_value());
  EXPECT_TRUE(ParseTraceparent("cc" + rest + "-more").has_value());
  EXPECT_FALSE(ParseTraceparent("cc" + rest + "more").has_value());
}

TEST(TraceparentTest, AnythingElseIsRefused) {
  for (const char* wrong :
       {"", "00", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        // version ff, upper case, another digit, one digit too many
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
        // something behind version 00
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        // ids of zero, dashes elsewhere
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01"}) {
    EXPECT_FALSE(ParseTraceparent(wrong).has_value()) << wrong;
  }
}

TEST(TraceparentTest, TextReadsBack) {
  for (const bool sampled : {false, true}) {
    const auto read =
        ParseTraceparent(TraceparentText({kTrace, kSpan, sampled}));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->trace_id, kTrace);
    EXPECT_EQ(read->span_id, kSpan);
    EXPECT_EQ(read->sampled, sampled);
  }
}

TEST(TraceparentTest, TwoFieldsNameNoTrace) {
  const std::string field =
      "traceparent: "
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
  const auto trace_of = [](const std::string& fields) {
    RequestParser request(1 << 14, 1 << 14);
    request.Feed("GET / HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n");
    return TraceparentOf(request);
  };
  EXPECT_TRUE(trace_of(field).has_value());
  EXPECT_FALSE(trace_of(field + field).has_value());
  EXPECT_FALSE(trace_of("").has_value());
}

}  // namespace
}  // namespace fineserve::proxy
