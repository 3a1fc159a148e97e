// Fuzzes the parsers with any bytes from a client or an engine, cut anywhere:
// every way to cut them gives the same result, and what the proxy makes of a
// message is again one message, so that no two readers disagree on where it
// ends.
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/http/head.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/base/http/response_parser.h"
#include "daemon/proxy/relay/answer_meter.h"
#include "daemon/proxy/request/json_number.h"
#include "daemon/proxy/request/request_facts.h"
#include "tests/fuzz/target.h"

namespace {

using namespace fineserve::proxy;  // NOLINT: this file is about nothing else

constexpr size_t kHeaderBytes = 2048;
constexpr uint64_t kBodyBytes = 4096;

constexpr char kRequest[] =
    "\x07POST /v1/completions?a=b HTTP/1.1\r\nHost: x\r\nConnection: X-Hop\r\n"
    "X-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    "10\r\n{\"model\":\"m\",\"n\":\r\n2;e\r\n1}\r\n0\r\nT: t\r\n\r\n";
constexpr char kAnswer[] =
    "\x03HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: "
    "text/event-stream\r\n\r\n8\r\ndata: 1\n\r\n1\r\n\n\r\n0\r\n\r\n";
constexpr char kPlainAnswer[] =
    "\x05HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello";
constexpr char kCount[] =
    "\x02{\"x\":\"\\\"count\\\":1\",\"count\": 27,\"max_model_len\":4096}";
constexpr char kBody[] =
    "\x01{\"model\":\"m\",\"stream\":true,\"messages\":[{\"role\":\"user\","
    "\"content\":[{\"type\":\"text\",\"text\":\"a\\n\"}]}],\"max_tokens\":5,"
    "\"tools\":[{}],\"prompt\":[[1,2],\"x\"]}";

void Expect(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "%s\n", what);
  abort();
}

// Feeds the bytes as a socket would: bytes that were not taken are offered
// again, followed by further ones.
template <typename Feed, typename Ended>
void FeedInPieces(absl::string_view bytes, size_t piece, Feed feed,
                  Ended ended) {
  std::string held;
  while (!bytes.empty() && !ended()) {
    absl::StrAppend(&held, bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    held.erase(0, feed(held));
  }
}

void Parse(absl::string_view bytes, size_t piece, RequestParser* request) {
  FeedInPieces(
      bytes, piece, [&](absl::string_view b) { return request->Feed(b); },
      [&] { return request->done() || request->error(); });
}

// Returns the body that the client would get.
std::string Parse(absl::string_view bytes, size_t piece,
                  ResponseParser* answer) {
  std::string body;
  AnswerMeter meter;
  FeedInPieces(
      bytes, piece,
      [&](absl::string_view b) {
        std::vector<absl::string_view> pieces;
        const size_t taken = answer->Feed(b, &pieces);
        for (const absl::string_view p : pieces) {
          absl::StrAppend(&body, p);
          meter.Feed(p);
        }
        return taken;
      },
      [&] { return answer->done() || answer->broken(); });
  Expect(!meter.usage() || meter.usage()->prompt_tokens != 0, "usage of 0");
  return body;
}

void FuzzRequest(absl::string_view bytes, size_t piece) {
  RequestParser whole(kHeaderBytes, kBodyBytes), cut(kHeaderBytes, kBodyBytes);
  Parse(bytes, bytes.size(), &whole);
  Parse(bytes, piece, &cut);
  const bool good = whole.done() && !whole.error();
  Expect(good == (cut.done() && !cut.error()), "one cut is a whole request");
  if (!good) return;
  Expect(*whole.body() == *cut.body(), "a cut changes the body");
  const size_t body_bytes = whole.body()->size();
  const std::string sent = absl::StrCat(
      RequestHead(whole, {"engine:1", "id", body_bytes, false}), *whole.body());
  RequestParser again(4 * kHeaderBytes, kBodyBytes);
  const size_t taken = again.Feed(sent);
  Expect(taken == sent.size() && !again.error() && again.done(),
         "what is forwarded is not one request");
  Expect(again.target() == whole.target(), "another target");
  Expect(*again.body() == *whole.body(), "another body");
}

void FuzzAnswer(absl::string_view bytes, size_t piece) {
  ResponseParser whole(kHeaderBytes, false), cut(kHeaderBytes, false);
  const std::string body = Parse(bytes, bytes.size(), &whole);
  const std::string cut_body = Parse(bytes, piece, &cut);
  const bool good = whole.done() && !whole.broken();
  Expect(good == (cut.done() && !cut.broken()), "one cut is a whole answer");
  if (!good) return;
  Expect(body == cut_body, "a cut changes the answer's body");
  RequestParser asked(kHeaderBytes, kBodyBytes);
  asked.Feed("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const Framing framing = FramingFor(asked, whole);
  if (framing == Framing::kChunks) return;  // its body is framed elsewhere
  const std::string sent =
      absl::StrCat(AnswerHead(whole, framing, "id", true), body);
  ResponseParser again(4 * kHeaderBytes, false);
  std::vector<absl::string_view> pieces;
  const size_t taken = again.Feed(sent, &pieces);
  Expect(taken == sent.size() && !again.broken() && again.done(),
         "what is relayed is not one answer");
}

// Reads a number from an engine's answer, which may be cut after any byte.
void FuzzCount(absl::string_view text, size_t piece) {
  const absl::optional<uint32_t> whole = NumberOf(text, "count");
  const absl::optional<uint32_t> cut = NumberOf(
      text.substr(0, text.size() - std::min(piece, text.size())), "count");
  Expect(!cut || cut == whole, "a cut changes the count");
}

}  // namespace

std::vector<std::vector<uint8_t>> fineserve::fuzz::Seeds() {
  return {{kRequest, kRequest + sizeof(kRequest) - 1},
          {kAnswer, kAnswer + sizeof(kAnswer) - 1},
          {kPlainAnswer, kPlainAnswer + sizeof(kPlainAnswer) - 1},
          {kCount, kCount + sizeof(kCount) - 1},
          {kBody, kBody + sizeof(kBody) - 1}};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  if (count < 2) return 0;
  const size_t piece = 1 + bytes[0] % 64;
  const absl::string_view text(reinterpret_cast<const char*>(bytes) + 1,
                               count - 1);
  FuzzRequest(text, piece);
  FuzzAnswer(text, piece);
  FuzzCount(text, piece);
  std::string body(text);
  ReadFormFacts("multipart/form-data; boundary=b", body).IgnoreError();
  const auto facts = ReadFacts(&body);
  Expect(!facts.ok() || facts->text_bytes <= count, "more text than bytes");
  Expect(body == text, "reading changes the body");
  return 0;
}
