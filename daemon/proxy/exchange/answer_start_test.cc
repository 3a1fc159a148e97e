#include "daemon/proxy/exchange/answer_start.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::proxy {
namespace {

struct Case {
  const char* name;
  const char* before;  // shows nothing
  const char* shows;   // behind it
  bool error;
};

constexpr Case kCases[] = {
    {"Chat", "", "data: {\"id\":\"chatcmpl-1\",\"choices\":[]}\n\n", false},
    {"Comments", ": keep-alive\n\n: data: x\n\nretry: 3\n\n", "data: 1\n\n",
     false},
    {"EmptyData", "data:\n\ndata: \r\n\r\n", "data: 1\n\n", false},
    {"Responses",
     "event: response.created\ndata: {\"type\":\"response.created\"}\n\n"
     "event: response.in_progress\r\ndata: {\"a\":{}}\r\n\r\n",
     "event: response.output_item.added\ndata: {}\n\n", false},
    {"QueuedResponse", "event: response.queued\ndata: {}\n\n",
     "event: response.completed\ndata: {}\n\n", false},
    {"Messages", "event: ping\ndata: {\"type\": \"ping\"}\n\n",
     "event: message_start\ndata: {\"type\":\"message_start\"}\n\n", false},
    {"EndOfAnEmptyStream", "", "data: [DONE]\n\n", false},
    {"NoError", "", "data: {\"error\":null,\"id\":1}\n\n", false},
    {"ErrorOfChats", ": keep-alive\n\n",
     "data: {\"error\": {\"message\": \"EngineCore died\"}}\n\n", true},
    {"ErrorOfSglang", "", "data:{\"error\":{\"object\":\"error\"}}\n\n", true},
    {"ErrorOfMessages", "",
     "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n", true},
    {"ErrorWithoutAName", "", "data: {\"type\": \"error\"}\n\n", true},
    {"ErrorOfResponses", "event: response.created\ndata: {}\n\n",
     "event: error\ndata: {\"code\":\"server_error\"}\n\n", true},
};

TEST(AnswerStartTest, FirstEventOfTheEnginesOwnIsFoundHoweverItIsCut) {
  for (const Case& c : kCases) {
    const std::string all = std::string(c.before) + c.shows;
    for (size_t cut = 1; cut <= all.size(); ++cut) {
      SCOPED_TRACE(std::string(c.name) + ", pieces of " + std::to_string(cut));
      AnswerStart start(200, /*streams=*/true);
      start.Feed(c.before);
      ASSERT_FALSE(start.is_known());
      AnswerStart in_pieces(200, /*streams=*/true);
      for (size_t at = 0; at < all.size(); at += cut) {
        in_pieces.Feed(absl::string_view(all).substr(at, cut));
      }
      ASSERT_TRUE(in_pieces.is_known());
      ASSERT_EQ(in_pieces.error().has_value(), c.error);
    }
  }
}

TEST(AnswerStartTest, OtherBodiesBeginWithTheirFirstByte) {
  AnswerStart start(200, /*streams=*/false);
  EXPECT_FALSE(start.is_known());
  start.Feed("");
  EXPECT_FALSE(start.is_known());
  start.Feed("{");
  EXPECT_TRUE(start.is_known());
  EXPECT_FALSE(start.error());
}

TEST(AnswerStartTest, StatusIsAnErrorOfTheEngineFrom500On) {
  for (const unsigned status : {500, 502, 503, 504}) {
    EXPECT_EQ(AnswerStart(status, false).error(), EngineError::kStatus);
  }
  for (const unsigned status : {200, 400, 404, 429, 501}) {
    EXPECT_FALSE(AnswerStart(status, false).error()) << status;
  }
}

}  // namespace
}  // namespace fineserve::proxy
