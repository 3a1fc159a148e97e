#include "tools/openai/client.h"

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tools/openai/error_tuple.h"

namespace fineserve::openai {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Request = http::request<http::string_body>;

constexpr size_t kPieceBytes = 16 << 10;
constexpr size_t kErrorBytes = 512;  // of a refusal's body, for the report

Request MakeRequest(const Target& target, const std::string& body,
                    const Client::Fields& fields) {
  Request request(http::verb::post, target.path, 11);
  request.set(http::field::host, target.host + ":" + target.port);
  request.set(http::field::content_type, "application/json");
  request.set(http::field::user_agent, "fineserve");
  if (!target.key.empty()) {
    request.set(http::field::authorization, "Bearer " + target.key);
  }
  for (const auto& [name, value] : fields) request.set(name, value);
  request.body() = body;
  request.prepare_payload();
  return request;
}

// Reads the body piece by piece.
class Reading {
 public:
  explicit Reading(bool notes_events) : notes_events_(notes_events) {}

  void Piece(absl::string_view bytes, int status) {
    if (status != 200) {
      const size_t room = kErrorBytes - std::min(kErrorBytes, refusal_.size());
      refusal_.append(bytes.data(), std::min(room, bytes.size()));
      return;
    }
    const uint64_t before = stream_.events();
    stream_.Feed(bytes);
    if (stream_.events() <= before) return;
    const Clock::time_point now = Clock::now();
    if (before == 0) first_token_ = now;
    if (notes_events_) events_.resize(stream_.events(), now);
  }

  void Finish(Answer* answer) {
    answer->end = Clock::now();
    answer->first_token = first_token_;
    answer->events = std::move(events_);
    answer->output_tokens = stream_.output_tokens();
    answer->prompt_tokens = stream_.prompt_tokens();
    if (answer->status != 200) {
      answer->error = refusal_.empty() ? "refused" : refusal_;
    } else if (!stream_.error().empty()) {
      answer->error = stream_.error();
    } else if (!stream_.done() && answer->error.empty()) {
      answer->error = "the stream ended without [DONE]";
    }
  }

 private:
  const bool notes_events_;
  StreamReader stream_;
  std::vector<Clock::time_point> events_;
  std::string refusal_;
  Clock::time_point first_token_;
};

}  // namespace

struct Client::Connection {
  explicit Connection(asio::io_context* context) : stream(*context) {}
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
};

Client::Client(asio::io_context* context, Target target,
               std::chrono::milliseconds timeout, bool notes_events)
    : context_(*context),
      target_(std::move(target)),
      timeout_(timeout),
      notes_events_(notes_events) {}

Client::~Client() = default;

asio::awaitable<bool> Client::Connect(Connection* connection, Answer* answer) {
  asio::ip::tcp::resolver resolver(context_);
  const auto [unresolved, found] =
      co_await resolver.async_resolve(target_.host, target_.port, kTuple);
  error_code e = unresolved;
  if (!e) {
    const auto [failed, at] =
        co_await connection->stream.async_connect(found, kTuple);
    e = failed;
  }
  if (e) {
    answer->error = absl::StrCat("cannot connect: ", e.message());
    answer->end = Clock::now();
    co_return false;
  }
  connection->stream.socket().set_option(asio::ip::tcp::no_delay(true), e);
  co_return true;
}

asio::awaitable<bool> Client::Exchange(Kept connection, const std::string& body,
                                       const Fields& fields, Answer* answer) {
  beast::tcp_stream& stream = connection->stream;
  const Request request = MakeRequest(target_, body, fields);
  const auto [unsent, sent] =
      co_await http::async_write(stream, request, kTuple);
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  error_code e = unsent;
  if (!e) {
    const auto [unread, bytes] = co_await http::async_read_header(
        stream, connection->buffer, parser, kTuple);
    e = unread;
  }
  if (e) {
    answer->error = e.message();
    answer->end = Clock::now();
    co_return false;
  }
  answer->status = parser.get().result_int();
  Reading reading(notes_events_);
  std::array<char, kPieceBytes> piece;
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    const auto [unread, bytes] = co_await http::async_read_some(
        stream, connection->buffer, parser, kTuple);
    const size_t got = piece.size() - parser.get().body().size;
    reading.Piece({piece.data(), got}, answer->status);
    if (unread && unread != http::error::need_buffer) {
      answer->error =
          absl::StrCat("the answer was cut off: ", unread.message());
      answer->is_cut = true;
      break;
    }
  }
  reading.Finish(answer);
  if (parser.is_done() && parser.keep_alive()) {
    stream.expires_never();
    idle_.push_back(std::move(connection));
  }
  co_return true;
}

asio::awaitable<Answer> Client::Post(std::string body, Fields fields) {
  Answer answer;
  if (!idle_.empty()) {
    Kept kept = std::move(idle_.back());
    idle_.pop_back();
    kept->stream.expires_after(timeout_);
    const auto began = Clock::now();
    const bool came = co_await Exchange(std::move(kept), body, fields, &answer);
    // The connection was closed while idle, so the request is sent again. After
    // a timeout it is not.
    if (came || Clock::now() - began >= timeout_) co_return answer;
    answer = Answer{};
  }
  auto fresh = std::make_unique<Connection>(&context_);
  fresh->stream.expires_after(timeout_);
  if (co_await Connect(fresh.get(), &answer)) {
    co_await Exchange(std::move(fresh), body, fields, &answer);
  }
  co_return answer;
}

std::string Prompt(uint32_t words, uint64_t seed) {
  static constexpr char kConsonants[] = "bdfgklmnprstvz";
  static constexpr char kVowels[] = "aeiou";
  std::string prompt;
  prompt.reserve(size_t{words} * 5);
  uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
  for (uint32_t i = 0; i < words; ++i) {
    if (i > 0) prompt += ' ';
    // xorshift64, which is good enough for words.
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    for (const unsigned shift : {8u, 24u}) {
      prompt += kConsonants[(x >> shift) % 14];
      prompt += kVowels[(x >> (shift + 8)) % 5];
    }
  }
  return prompt;
}

std::string Body(const std::string& model, uint32_t words,
                 uint32_t output_tokens, uint64_t seed, bool chat) {
  nlohmann::ordered_json body = {{"model", model}};
  const std::string prompt = Prompt(words, seed);
  if (chat) {
    body["messages"] = {{{"role", "user"}, {"content", prompt}}};
  } else {
    body["prompt"] = prompt;
  }
  body["max_tokens"] = output_tokens;
  body["ignore_eos"] = true;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  return body.dump();
}

namespace {

using Json = nlohmann::json;

uint32_t Count(const Json& usage, const char* name) {
  const auto found = usage.find(name);
  return found != usage.end() && found->is_number_unsigned()
             ? found->get<uint32_t>()
             : 0;
}

// OpenAI's errors are {"error": {"message": …}}.
std::string MessageOf(const Json& error) {
  if (error.is_object() && error.contains("message") &&
      error["message"].is_string()) {
    return error["message"].get<std::string>();
  }
  return error.dump();
}

}  // namespace

void StreamReader::Feed(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == absl::string_view::npos) {
      partial_.append(bytes.data(), bytes.size());
      if (partial_.size() > kMostLineBytes) error_ = "a line is too long";
      if (!error_.empty()) partial_.clear();
      return;
    }
    if (partial_.empty()) {
      Line(bytes.substr(0, end));
    } else {
      partial_.append(bytes.data(), end);
      Line(partial_);
      partial_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void StreamReader::Line(absl::string_view line) {
  absl::ConsumeSuffix(&line, "\r");
  // Blank lines and ": comments" carry no data.
  if (!absl::ConsumePrefix(&line, "data:")) return;
  absl::ConsumePrefix(&line, " ");
  if (line == "[DONE]") {
    done_ = true;
    return;
  }
  if (absl::StrContains(line, "\"usage\":{") ||
      absl::StrContains(line, "\"usage\": {") ||
      absl::StrContains(line, "\"error\"")) {
    Parse(line);
  }
  ++events_;
}

void StreamReader::Parse(absl::string_view json) {
  const Json event = Json::parse(json.begin(), json.end(), nullptr, false);
  if (!event.is_object()) return;
  if (event.contains("error")) error_ = MessageOf(event["error"]);
  if (!event.contains("usage") || !event["usage"].is_object()) return;
  prompt_tokens_ = Count(event["usage"], "prompt_tokens");
  completion_tokens_ = Count(event["usage"], "completion_tokens");
  // An event that has only usage is not a token.
  const bool only_usage = event.contains("choices") && event["choices"].empty();
  if (only_usage && events_ > 0) --events_;
}

uint32_t StreamReader::output_tokens() const {
  return completion_tokens_ != 0 ? completion_tokens_
                                 : static_cast<uint32_t>(events_);
}

}  // namespace fineserve::openai
