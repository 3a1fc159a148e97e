#include "bench/soak/clients.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tools/lab/engines/tinyserve/model/answer.h"
#include "tools/lab/process/eventually.h"
#include "tools/openai/error_tuple.h"

namespace fineserve::bench {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

using openai::kTuple;

http::request<http::string_body> MakeRequest(HttpQuestion question) {
  http::request<http::string_body> request(http::verb::post, "/v1/completions",
                                           11);
  request.set(http::field::host, "127.0.0.1");
  request.set(http::field::content_type, "application/json");
  for (const auto& [name, value] : question.fields) request.set(name, value);
  request.keep_alive(false);
  request.body() = std::move(question.body);
  request.prepare_payload();
  return request;
}

void NoteError(error_code e, HttpAnswer* answer) {
  answer->error = e.message();
  answer->timed_out = e == beast::error::timeout;
}

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

using openai::kTuple;
constexpr int kClients = 10;
constexpr uint32_t kMostPromptTokens = 300, kMostAnswerTokens = 60;
constexpr uint64_t kLongestPauseMs = 80;  // between two questions of a client
constexpr std::chrono::milliseconds kPauseOfRefused(300);

// Returns a prompt of `tokens` tokens, different for each number.
std::string Prompt(uint32_t number, uint32_t tokens) {
  std::string prompt = absl::StrCat("request ", number);
  for (uint32_t i = 2; i < tokens; ++i) absl::StrAppend(&prompt, " w", i);
  return prompt;
}

std::string Expected(const std::string& model, const std::string& prompt,
                     uint32_t tokens) {
  return tinyserve::Text(
      tinyserve::ExpectedAnswer(model, tinyserve::Tokenise(prompt),
                                {.most_tokens = tokens, .ignore_end = true}));
}

// A stream's text so far, and how it ended.
struct Stream {
  std::string text;
  bool done = false;
  bool error = false;
  bool understood = true;
};

Stream ReadStream(const std::string& body) {
  Stream stream;
  for (absl::string_view event :
       absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
    if (stream.done || !absl::ConsumePrefix(&event, "data: ")) {
      stream.understood = false;
    } else if (event == "[DONE]") {
      stream.done = true;
    } else {
      const Json json = Json::parse(event.begin(), event.end(), nullptr, false);
      static const Json::json_pointer text("/choices/0/text");
      if (json.is_object() && json.contains("error")) {
        stream.error = true;
      } else if (json.is_object() && json.contains(text)) {
        stream.text += json.at(text).get<std::string>();
      } else {
        // The last event of a killed engine may be incomplete.
        stream.understood = stream.understood && json.is_discarded();
      }
    }
  }
  return stream;
}

std::string WholeText(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  static const Json::json_pointer text("/choices/0/text");
  return json.is_object() && json.contains(text)
             ? json.at(text).get<std::string>()
             : "no text: " + body;
}

}  // namespace

asio::awaitable<HttpAnswer> Post(HttpQuestion question,
                                 std::chrono::seconds limit) {
  HttpAnswer answer;
  beast::tcp_stream stream(co_await asio::this_coro::executor);
  stream.expires_after(limit);
  const asio::ip::tcp::endpoint at(asio::ip::address_v4::loopback(),
                                   question.port);
  const bool leaves = question.leaves;
  const auto request = MakeRequest(std::move(question));
  auto [unconnected] = co_await stream.async_connect(at, kTuple);
  error_code e = unconnected;
  if (!e) {
    const auto [unsent, bytes] =
        co_await http::async_write(stream, request, kTuple);
    e = unsent;
  }
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);
  while (!e && !parser.is_done()) {
    const auto [unread, bytes] =
        co_await http::async_read_some(stream, buffer, parser, kTuple);
    e = unread;
    if (leaves && parser.is_header_done()) break;
  }
  if (e) NoteError(e, &answer);
  if (!parser.is_header_done()) co_return answer;
  answer.status = parser.get().result_int();
  const auto field = [&](const char* name) {
    const auto value = parser.get()[name];
    return std::string(value.data(), value.size());
  };
  answer.reason = field("x-fineserve-reason");
  answer.retry_after = field("retry-after");
  answer.body = std::move(parser.get().body());
  co_return answer;
}

void ClientFigures::Add(const ClientFigures& other) {
  for (size_t i = 0; i < kEndings; ++i) ended[i] += other.ended[i];
  longest_s = std::max(longest_s, other.longest_s);
}

Clients::Clients(SoakSite* site, std::vector<std::string> models,
                 std::vector<uint16_t> ports, std::chrono::seconds limit,
                 uint64_t seed)
    : site_(*site),
      models_(std::move(models)),
      ports_(std::move(ports)),
      limit_(limit) {
  for (const std::string& model : models_) unrest_[model] = 0;
  for (int i = 0; i < kClients; ++i) {
    asio::co_spawn(context_, BeClient(seed + static_cast<uint64_t>(i)),
                   asio::detached);
  }
  thread_ = std::thread([this] { context_.run(); });
}

Clients::~Clients() {
  ending_ = true;
  thread_.join();
}

asio::awaitable<void> Clients::Sleep(std::chrono::milliseconds time) {
  asio::steady_timer timer(context_, time);
  co_await timer.async_wait(kTuple);
}

asio::awaitable<void> Clients::BeClient(uint64_t seed) {
  std::mt19937_64 random(seed);
  while (!ending_) {
    if (resting_) {
      co_await Sleep(std::chrono::milliseconds(2));
      continue;
    }
    ++flying_;
    const absl::optional<Ending> ending = co_await AskOnce(Next(&random));
    --flying_;
    const bool refused = ending == Ending::kLate || ending == Ending::kNone;
    co_await Sleep(refused
                       ? kPauseOfRefused
                       : std::chrono::milliseconds(random() % kLongestPauseMs));
  }
}

void Clients::Rest() {
  resting_ = true;
  // When this has run, a client that has just seen that it may ask has sent its
  // request.
  std::promise<void> seen;
  asio::post(context_, [&] { seen.set_value(); });
  seen.get_future().wait();
  // Ends, since each request ends within its limit.
  while (flying_ > 0) process::Breathe();
}

Clients::Question Clients::Next(std::mt19937_64* random) {
  const auto below = [random](uint64_t most) { return (*random)() % most; };
  Question q;
  q.model = models_[below(models_.size())];
  q.port = ports_[below(ports_.size())];
  q.number = ++asked_;
  q.prompt =
      Prompt(q.number, 1 + static_cast<uint32_t>(below(kMostPromptTokens)));
  q.tokens = 1 + static_cast<uint32_t>(below(kMostAnswerTokens));
  q.stream = below(2) == 0;
  q.leaves = below(16) == 0;
  q.patient = below(2) == 0;
  return q;
}

asio::awaitable<absl::optional<Ending>> Clients::AskOnce(Question question) {
  const std::atomic<uint32_t>& unrest = unrest_.at(question.model);
  const uint32_t before = unrest;
  const auto start = Clock::now();
  HttpQuestion http;
  http.port = question.port;
  http.body = Json{{"model", question.model},
                   {"prompt", question.prompt},
                   {"max_tokens", question.tokens},
                   {"ignore_eos", true},
                   {"stream", question.stream}}
                  .dump();
  http.fields = {{"x-request-id", absl::StrCat("soak-", question.number)}};
  // Longer than any process is stopped, and shorter than kLimit.
  if (question.patient) http.fields.emplace_back("x-slo-ttft-ms", "20000");
  http.leaves = question.leaves;
  const HttpAnswer answer = co_await Post(std::move(http), limit_);
  if (answer.error.empty() && !question.leaves) {
    figures_.longest_s =
        std::max(figures_.longest_s,
                 std::chrono::duration<double>(Clock::now() - start).count());
  }
  co_return Judge(question, answer, before % 2 == 1 || unrest != before);
}

absl::optional<Ending> Clients::Judge(const Question& question,
                                      const HttpAnswer& answer, bool unrest) {
  std::string wrong;
  const auto ending = EndingOf(question, answer, unrest, &wrong);
  if (ending) {
    ++figures_.ended[static_cast<size_t>(*ending)];
    return ending;
  }
  site_.Fail(
      answer.timed_out ? Fault::kNoAnswer : Fault::kWrongAnswer,
      absl::StrCat(answer.timed_out
                       ? absl::StrCat("no answer within ", limit_.count(), " s")
                       : "a wrong answer",
                   " to request soak-", question.number, " (", question.model,
                   ", ", question.stream ? "a stream" : "whole", ", ",
                   question.tokens, " tokens, proxy on port ", question.port,
                   "): ", wrong, "; status ", answer.status, " ", answer.reason,
                   ", ", answer.error,
                   "; what came: ", answer.body.substr(0, 500)));
  return absl::nullopt;
}

absl::optional<Ending> Clients::EndingOf(const Question& question,
                                         const HttpAnswer& answer, bool unrest,
                                         std::string* wrong) const {
  const auto wrongly = [wrong](const char* why) {
    *wrong = why;
    return absl::nullopt;
  };
  if (answer.timed_out) return wrongly("silence");
  if (!answer.error.empty()) {
    // Nothing further can be checked in a plain answer that has begun (note
    // 0012).
    if (unrest && !question.stream && answer.status == 200) {
      return Ending::kBroken;
    }
    return wrongly("the connection was cut");
  }
  if (question.leaves) return Ending::kLeft;
  if (answer.status == 429 || answer.status == 503) {
    if (answer.retry_after.empty()) return wrongly("no Retry-After");
    return answer.status == 429 ? Ending::kLate : Ending::kNone;
  }
  if (answer.status == 502 && unrest) return Ending::kBroken;
  if (answer.status != 200) return wrongly("this status");
  const std::string expected =
      Expected(question.model, question.prompt, question.tokens);
  if (!question.stream) {
    return WholeText(answer.body) == expected
               ? absl::optional<Ending>(Ending::kRight)
               : wrongly("other tokens");
  }
  const Stream stream = ReadStream(answer.body);
  if (!absl::StartsWith(expected, stream.text)) return wrongly("other tokens");
  if (stream.error && unrest) return Ending::kBroken;
  if (!stream.understood) return wrongly("no event of the API");
  if (!stream.done) return wrongly("the stream ended without [DONE]");
  if (stream.text != expected) return wrongly("tokens are missing");
  return Ending::kRight;
}

bool Clients::Serves(const std::string& model, uint16_t port) {
  const std::string expected = Expected(model, "hello", 5);
  HttpAnswer last;
  const bool serves = process::Eventually([&] {
    HttpQuestion question;
    question.port = port;
    question.body = Json{
        {"model", model},
        {"prompt", "hello"},
        {"max_tokens", 5},
        {"ignore_eos",
         true}}.dump();
    last = asio::co_spawn(context_, Post(std::move(question), limit_),
                          asio::use_future)
               .get();
    return last.timed_out ||
           (last.status == 200 && WholeText(last.body) == expected);
  });
  if (serves && !last.timed_out) return true;
  site_.Fail(Fault::kNoAnswer,
             absl::StrCat(model, " does not serve on port ", port, ": status ",
                          last.status, " ", last.reason, " ", last.error, " ",
                          last.body));
  return false;
}

}  // namespace fineserve::bench
