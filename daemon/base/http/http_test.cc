// Tests of requests and answers as bytes: the parsers, and the heads that are
// forwarded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/http/head.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/base/http/response_parser.h"

namespace fineserve::proxy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kHeaderBytes = 4096;
constexpr uint64_t kBodyBytes = 1000;

// Feeds `bytes` in pieces of `piece`, as a socket would. Returns what is left
// over.
template <typename Parser, typename... More>
std::string FeedInPieces(Parser* parser, absl::string_view bytes, size_t piece,
                         More... more) {
  std::string held;
  while (!bytes.empty() || !held.empty()) {
    const absl::string_view next = bytes.substr(0, piece);
    absl::StrAppend(&held, next);
    bytes.remove_prefix(next.size());
    held.erase(0, parser->Feed(held, more...));
    if (parser->done() || next.empty()) break;
  }
  return absl::StrCat(held, bytes);
}

constexpr char kChunkedRequest[] =
    "POST /v1/completions HTTP/1.1\r\nHost: x\r\nA: 1\r\n"
    "Transfer-Encoding: chunked\r\n\r\n"
    "4\r\n{\"a\"\r\n3;x=y\r\n:1}\r\n0\r\nTrailer: t\r\n\r\nGET ";

TEST(RequestParserTest, ReadsAChunkedBodyHoweverItIsCut) {
  for (size_t piece = 1; piece < sizeof(kChunkedRequest); ++piece) {
    RequestParser request(kHeaderBytes, kBodyBytes);
    const std::string rest = FeedInPieces(&request, kChunkedRequest, piece);
    ASSERT_TRUE(request.done()) << "pieces of " << piece;
    ASSERT_FALSE(request.error().has_value());
    ASSERT_EQ(*request.body(), "{\"a\":1}");
    ASSERT_EQ(request.target(), "/v1/completions");
    ASSERT_EQ(request.Field("a"), "1");
    ASSERT_EQ(rest, "GET ");
  }
}

TEST(RequestParserTest, EmptyLinesBeforeARequestAreSkipped) {
  const std::string bytes = absl::StrCat("\r\n\r\n", kChunkedRequest);
  for (size_t piece = 1; piece < bytes.size(); ++piece) {
    RequestParser request(kHeaderBytes, kBodyBytes);
    ASSERT_EQ(FeedInPieces(&request, bytes, piece), "GET ") << piece;
    ASSERT_FALSE(request.error().has_value()) << request.error()->message;
    ASSERT_EQ(*request.body(), "{\"a\":1}");
  }
  RequestParser request(kHeaderBytes, kBodyBytes);
  EXPECT_EQ(request.Feed("\r"), 0u);
  EXPECT_EQ(request.Feed("\rG"), 0u);
  EXPECT_TRUE(request.error().has_value());
}

TEST(RequestParserTest, TargetInAbsoluteFormIsItsPath) {
  const struct {
    const char *target, *path;
  } kCases[] = {{"http://h:1/v1/models?a=//b", "/v1/models?a=//b"},
                {"HTTPS://h/", "/"},
                {"http://h", "/"},
                {"/a://b", "/a://b"},
                {"*", "*"}};
  for (const auto& c : kCases) {
    RequestParser request(kHeaderBytes, kBodyBytes);
    request.Feed(
        absl::StrCat("GET ", c.target, " HTTP/1.1\r\nHost: h\r\n\r\n"));
    ASSERT_TRUE(request.done()) << c.target;
    EXPECT_EQ(request.target(), c.path);
  }
}

TEST(RequestParserTest, BodiesTakeFromTheirBudgetWhatTheyHold) {
  BodyBudget budget(1000);
  const std::string large(BodyBudget::kFreeBytes + 600, 'x');
  const std::string bytes = absl::StrCat(
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ", large.size(),
      "\r\n\r\n", large);
  RequestParser first(kHeaderBytes, 1 << 20, &budget);
  first.Feed(bytes);
  ASSERT_TRUE(first.done());
  EXPECT_EQ(budget.left_bytes(), 400u);
  {
    RequestParser second(kHeaderBytes, 1 << 20, &budget);
    second.Feed(bytes);
    ASSERT_TRUE(second.error().has_value());
    EXPECT_EQ(second.error()->status, 503u);
    EXPECT_EQ(budget.left_bytes(), 400u);
  }
  first.TakeBody();
  EXPECT_EQ(budget.left_bytes(), 1000u);
}

TEST(RequestParserTest, LargeBodyIsNotCopiedAsItGrows) {
  const std::string piece(300 << 10, 'x');
  const std::string chunk =
      absl::StrCat(absl::Hex(piece.size()), "\r\n", piece, "\r\n");
  RequestParser chunks(kHeaderBytes, 1 << 20);
  chunks.Feed(
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  // The end of a chunk is taken together with the length of the next chunk.
  std::string bytes = chunk;
  bytes.erase(0, chunks.Feed(bytes));
  const char* const at = chunks.body()->data();
  bytes += chunk;
  chunks.Feed(bytes);
  EXPECT_EQ(chunks.body()->size(), 2 * piece.size());
  EXPECT_EQ(chunks.body()->data(), at);
  RequestParser declared(kHeaderBytes, 1 << 20);
  declared.Feed(absl::StrCat("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ",
                             piece.size(), "\r\n\r\n"));
  EXPECT_GE(declared.body()->capacity(),
            piece.size() + RequestParser::kSlackBytes);
}

// The header was already used for decisions.
TEST(RequestParserTest, FieldsBehindABodyInChunksAreNotTheRequests) {
  RequestParser request(kHeaderBytes, kBodyBytes);
  request.Feed(
      "POST / HTTP/1.1\r\nHost: x\r\nA: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
      "1\r\nx\r\n0\r\nx-slo-ttft-ms: 1\r\nA: 2\r\n\r\n");
  ASSERT_TRUE(request.done());
  EXPECT_EQ(request.Field("x-slo-ttft-ms"), "");
  std::string values;
  request.ForEachField([&](absl::string_view, absl::string_view value) {
    values += std::string(value) + " ";
  });
  EXPECT_EQ(values, "x 1 chunked ");
}

TEST(RequestParserTest, BodyCanBeLimitedWhenItsHeaderIsKnown) {
  for (const char* body : {"Content-Length: 3\r\n\r\nabc",
                           "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"}) {
    const std::string bytes =
        std::string("POST / HTTP/1.1\r\nHost: x\r\n") + body;
    const size_t header = bytes.find("\r\n\r\n") + 4;
    RequestParser request(kHeaderBytes, kBodyBytes);
    request.Feed(bytes.substr(0, header));
    ASSERT_TRUE(request.header_done());
    request.LimitBody(2);
    request.Feed(bytes.substr(header));
    ASSERT_TRUE(request.error().has_value()) << body;
    EXPECT_EQ(request.error()->status, 413u);
  }
}

struct BadRequest {
  const char* name;
  std::string bytes;
  unsigned status;
};

class BadRequestTable : public testing::TestWithParam<BadRequest> {};

TEST_P(BadRequestTable, IsRefused) {
  RequestParser request(kHeaderBytes, kBodyBytes);
  FeedInPieces(&request, GetParam().bytes, GetParam().bytes.size());
  ASSERT_TRUE(request.error().has_value());
  EXPECT_EQ(request.error()->status, GetParam().status);
}

std::string ManyFields(size_t n) {
  std::string fields;
  for (size_t i = 0; i < n; ++i) absl::StrAppend(&fields, "X-", i, ": y\r\n");
  return fields;
}

INSTANTIATE_TEST_SUITE_P(
    , BadRequestTable,
    testing::Values(
        BadRequest{"NoHttp", "\x16\x03\x01\x02\r\n\r\n", 400},
        BadRequest{"NoVersion", "GET /\r\n\r\n", 400},
        BadRequest{"LongTarget",
                   "GET /" + std::string(5000, 'a') + " HTTP/1.1\r\n\r\n", 431},
        BadRequest{"LongField",
                   "GET / HTTP/1.1\r\nA: " + std::string(5000, 'a'), 431},
        BadRequest{"ManyFields", "GET / HTTP/1.1\r\n" + ManyFields(900), 431},
        BadRequest{"LongBody",
                   "POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413},
        BadRequest{"LongChunks",
                   "POST / HTTP/1.1\r\nHost: x\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n"
                   "3e9\r\n" +
                       std::string(1001, 'x'),
                   413},
        // Two lengths let two readers disagree on where a request ends.
        BadRequest{"LengthAndChunks",
                   "POST / HTTP/1.1\r\nContent-Length: 3\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n",
                   400},
        BadRequest{"TwoLengths",
                   "POST / HTTP/1.1\r\nContent-Length: 3\r\n"
                   "Content-Length: 4\r\n\r\n",
                   400},
        BadRequest{"NegativeLength",
                   "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
        BadRequest{"BlankBeforeColon", "GET / HTTP/1.1\r\nA : b\r\n\r\n", 400},
        BadRequest{"NoHost", "GET / HTTP/1.1\r\nA: b\r\n\r\n", 400},
        BadRequest{"TwoHosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                   400},
        BadRequest{"UnknownCoding",
                   "POST / HTTP/1.1\r\nHost: x\r\n"
                   "Transfer-Encoding: xchunked\r\n\r\n",
                   501},
        BadRequest{"CodingBeforeChunks",
                   "POST / HTTP/1.1\r\nHost: x\r\n"
                   "Transfer-Encoding: gzip, chunked\r\n\r\n",
                   501},
        BadRequest{"TwoCodings",
                   "POST / HTTP/1.1\r\nHost: x\r\n"
                   "Transfer-Encoding: chunked\r\n"
                   "Transfer-Encoding: xchunked\r\n\r\n",
                   400},
        BadRequest{"BadChunk",
                   "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz"
                   "\r\n",
                   400}),
    [](const auto& info) { return info.param.name; });

constexpr char kChunkedAnswer[] =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
    "Content-Type: text/event-stream\r\nConnection: X-Own\r\nX-Own: 1\r\n"
    "X-Request-Id: theirs\r\nVia: z\r\n\r\n"
    "5\r\ndata:\r\n3\r\n 1\n\r\n1\r\n\n\r\n0\r\n\r\n";

TEST(ResponseParserTest, GivesTheBodyHoweverItIsCut) {
  for (size_t piece = 1; piece < sizeof(kChunkedAnswer); ++piece) {
    ResponseParser answer(kHeaderBytes, /*to_head=*/false);
    std::string held, body;
    absl::string_view bytes = kChunkedAnswer;
    while (!answer.done()) {
      ASSERT_FALSE(bytes.empty());
      absl::StrAppend(&held, bytes.substr(0, piece));
      bytes.remove_prefix(std::min(piece, bytes.size()));
      std::vector<absl::string_view> pieces;
      const size_t taken = answer.Feed(held, &pieces);
      absl::StrAppend(&body, absl::StrJoin(pieces, ""));
      held.erase(0, taken);
    }
    ASSERT_EQ(body, "data: 1\n\n") << "pieces of " << piece;
    ASSERT_EQ(answer.status(), 200u);
    ASSERT_FALSE(answer.broken());
  }
}

TEST(ResponseParserTest, EndOfConnectionEndsABodyWithoutALength) {
  ResponseParser answer(kHeaderBytes, false);
  std::vector<absl::string_view> pieces;
  answer.Feed("HTTP/1.1 200 OK\r\n\r\n", &pieces);
  answer.Feed("abc", &pieces);
  EXPECT_FALSE(answer.done());
  answer.FeedEnd();
  EXPECT_TRUE(answer.done());
  EXPECT_FALSE(answer.broken());
  EXPECT_FALSE(answer.keep_alive());
}

TEST(ResponseParserTest, EndOfConnectionBreaksOtherBodies) {
  for (const char* start :
       {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"}) {
    ResponseParser answer(kHeaderBytes, false);
    std::vector<absl::string_view> pieces;
    answer.Feed(start, &pieces);
    answer.FeedEnd();
    EXPECT_TRUE(answer.broken()) << start;
  }
}

TEST(ResponseParserTest, AnswerToHeadHasNoBody) {
  ResponseParser answer(kHeaderBytes, /*to_head=*/true);
  std::vector<absl::string_view> pieces;
  answer.Feed("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", &pieces);
  EXPECT_TRUE(answer.done());
  EXPECT_EQ(answer.content_length().value_or(0), 9u);
}

TEST(ResponseParserTest, StatusBelow100IsBroken) {
  ResponseParser answer(kHeaderBytes, false);
  std::vector<absl::string_view> pieces;
  answer.Feed("HTTP/1.1 000 OK\r\nContent-Length: 5\r\n\r\nhello", &pieces);
  EXPECT_TRUE(answer.broken());
}

TEST(ResponseParserTest, GarbageIsBroken) {
  ResponseParser answer(kHeaderBytes, false);
  std::vector<absl::string_view> pieces;
  answer.Feed("SSH-2.0-OpenSSH\r\n", &pieces);
  EXPECT_TRUE(answer.broken());
}

class HeadTest : public testing::Test {
 protected:
  void Ask(absl::string_view bytes) { request_.Feed(bytes); }
  void Answer(absl::string_view bytes) { answer_.Feed(bytes, &pieces_); }

  RequestParser request_{kHeaderBytes, kBodyBytes};
  ResponseParser answer_{kHeaderBytes, false};
  std::vector<absl::string_view> pieces_;
};

TEST_F(HeadTest, RequestGoesOnWithoutWhatConcernedItsConnection) {
  Ask("POST /v1/x?y=1 HTTP/1.1\r\nHost: me\r\nConnection: keep-alive, X-Hop\r\n"
      "X-Hop: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n"
      "Traceparent: 00-1-2-01\r\nX-Request-Id: theirs\r\nAuthorization: Bearer "
      "k\r\nX-API-Key: k\r\nx-slo-ttft-ms: 5\r\nContent-Length: 2\r\n\r\n{}");
  const std::string head =
      RequestHead(request_, {"engine:1", "mine", 2, /*drop=*/true});
  EXPECT_EQ(head,
            "POST /v1/x?y=1 HTTP/1.1\r\nhost: engine:1\r\n"
            "Traceparent: 00-1-2-01\r\nx-slo-ttft-ms: 5\r\n"
            "x-request-id: mine\r\ncontent-length: 2\r\n\r\n");
  EXPECT_THAT(RequestHead(request_, {"engine:1", "mine", 2, false}),
              HasSubstr("Authorization: Bearer k\r\nX-API-Key: k\r\n"));
}

TEST_F(HeadTest, ChunkedRequestGoesOnWithALength) {
  Ask(kChunkedRequest);
  const std::string head = RequestHead(request_, {"e:1", "i", 7, false});
  EXPECT_THAT(head, HasSubstr("content-length: 7\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("hunked")));
}

TEST_F(HeadTest, AnswerOfUnknownLengthGoesOnInChunks) {
  Ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  Answer(kChunkedAnswer);
  ASSERT_EQ(FramingFor(request_, answer_), Framing::kChunks);
  EXPECT_EQ(AnswerHead(answer_, Framing::kChunks, "mine", true),
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nVia: z\r\n"
            "x-request-id: mine\r\ntransfer-encoding: chunked\r\n"
            "connection: keep-alive\r\n\r\n");
}

TEST_F(HeadTest, Http10ClientGetsNoChunks) {
  Ask("GET / HTTP/1.0\r\n\r\n");
  Answer(kChunkedAnswer);
  EXPECT_EQ(FramingFor(request_, answer_), Framing::kEndOfConnection);
}

TEST_F(HeadTest, LengthStays) {
  Ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  Answer("HTTP/1.1 404 Gone Fishing\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(FramingFor(request_, answer_), Framing::kLength);
  EXPECT_EQ(AnswerHead(answer_, Framing::kLength, "i", false),
            "HTTP/1.1 404 Gone Fishing\r\nContent-Length: 0\r\n"
            "x-request-id: i\r\nconnection: close\r\n\r\n");
}

TEST(LocalAnswerTest, AnswerToHeadSaysItsLengthOnly) {
  LocalAnswer answer;
  answer.body = "12345";
  const std::string text = LocalAnswerText(answer, /*to_head=*/true, "", true);
  EXPECT_THAT(text, HasSubstr("content-length: 5\r\n"));
  EXPECT_THAT(text, testing::EndsWith("\r\n\r\n"));
}

TEST(ErrorTest, EventEndsTheOneThatWasCut) {
  const ApiError error = ServerError(502, "c", "a \"b\"\n");
  const std::string body =
      "data: {\"error\":{\"message\":\"a \\\"b\\\"\\u000a\",\"type\":"
      "\"server_error\",\"param\":null,\"code\":\"c\"}}\n\n";
  EXPECT_EQ(ErrorEvent(error, /*between_events=*/true, false), body);
  EXPECT_EQ(ErrorEvent(error, /*between_events=*/false, false), "\n\n" + body);
}

TEST(ErrorTest, EventOfAnthropicsApiHasAName) {
  EXPECT_EQ(ErrorEvent(ServerError(502, "c", "a \"b\""), true, true),
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
            "\"api_error\",\"message\":\"a \\\"b\\\"\"}}\n\n");
}

}  // namespace
}  // namespace fineserve::proxy
