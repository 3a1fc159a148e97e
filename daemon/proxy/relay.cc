// The half of an Exchange that talks to the engine.

#include <stdio.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/proxy/exchange.h"

namespace fineserve::proxy {
namespace {

constexpr size_t kMostReadBytes = 64 << 10;

bool IsInformational(unsigned status) { return status / 100 == 1; }

ApiError EngineGone(const std::string& model) {
  return ServerError(
      502, "engine_gone",
      absl::StrCat("the engine that serves ", model, " went away; try again"));
}

}  // namespace

// One attempt on one engine. A kept connection that the engine has closed
// meanwhile says nothing about the engine: then a new one is tried.
asio::awaitable<Exchange::Ended> Exchange::Forward(
    const config::FleetEngine& engine) {
  const std::string authority = absl::StrCat(engine.host, ":", engine.port);
  const std::string head =
      RequestHead(*request_, {authority, request_id_, request_->body()->size(),
                              !service_->routes->keys().is_open()});
  Ended ended;
  do {
    if (!co_await Open(engine, authority)) co_return Ended::kNotAnswered;
    ended = co_await Ask(head);
  } while (ended == Ended::kNotAnswered && reused_ && !client_gone_);
  if (ended != Ended::kWhole) co_return ended;
  std::string().swap(*request_->body());  // it will not be sent again
  ended = co_await Relay();
  const bool keeps =
      ended == Ended::kWhole && answer_->keep_alive() && from_engine_.empty();
  if (keeps) {
    service_->engines.Keep(authority, *std::move(engine_),
                           service_->clock->NowNs());
  }
  engine_.reset();
  co_return ended;
}

asio::awaitable<bool> Exchange::Open(const config::FleetEngine& engine,
                                     const std::string& authority) {
  engine_ = reused_ ? absl::nullopt : service_->engines.Take(authority);
  reused_ = engine_.has_value();
  if (reused_) co_return true;
  engine_.emplace(client_->executor());
  client_->Guard(&*engine_, service_->limits.connect_s);
  const error_code e = co_await Connect(&*engine_, engine.host, engine.port);
  client_->Unguard();
  if (!e) Prepare(&*engine_);
  co_return !e && !client_gone_;
}

// kWhole: the head of an answer is there.
asio::awaitable<Exchange::Ended> Exchange::Ask(const std::string& head) {
  from_engine_ = ByteBuffer();
  parsed_bytes_ = 0;
  answered_ = false;
  Buffers buffers = {asio::buffer(head)};
  if (!request_->body()->empty()) {
    buffers.push_back(asio::buffer(*request_->body()));
  }
  error_code e = WriteNow(&*engine_, &buffers);
  if (!e && !buffers.empty()) {
    e = co_await WriteRest(&*engine_, &buffers, [] {});
  }
  // An engine may refuse a large body before it has all of it; its answer is
  // there to be read even so.
  co_return co_await AwaitAnswer();
}

asio::awaitable<Exchange::Ended> Exchange::AwaitAnswer() {
  const bool to_head = request_->method() == "HEAD";
  do {
    answer_.emplace(service_->limits.header_bytes, to_head);
    Parse();  // behind an informational answer, the next may be there already
    error_code e;
    while (!e && !answer_->broken() && !answer_->header_done()) {
      e = co_await ReadAnswer();
    }
    if (client_gone_) co_return Ended::kClientGone;
    if (e || answer_->broken()) {
      co_return answered_ ? Ended::kBroken : Ended::kNotAnswered;
    }
  } while (IsInformational(answer_->status()));
  co_return Ended::kWhole;
}

// Waits for more of the answer. What was parsed before is forgotten: pieces_
// are to be used before the next call.
asio::awaitable<error_code> Exchange::ReadAnswer() {
  pieces_.clear();
  from_engine_.Consume(std::exchange(parsed_bytes_, 0));
  const size_t before = from_engine_.bytes().size();
  const error_code e = co_await ReadSome(&*engine_, &from_engine_, read_bytes_);
  if (e == asio::error::eof && answer_->header_done()) {
    answer_->FeedEnd();
    co_return error_code();
  }
  if (e) co_return e;
  answered_ = true;
  const bool full = from_engine_.bytes().size() - before == read_bytes_;
  if (full) read_bytes_ = std::min(2 * read_bytes_, kMostReadBytes);
  Parse();
  co_return error_code();
}

void Exchange::Parse() {
  from_engine_.Consume(std::exchange(parsed_bytes_, 0));
  parsed_bytes_ = answer_->Feed(from_engine_.bytes(), &pieces_);
}

asio::awaitable<Exchange::Ended> Exchange::Relay() {
  framing_ = FramingFor(*request_, *answer_);
  head_sent_ = true;
  const bool stays =
      client_->Stays(*request_) && framing_ != Framing::kEndOfConnection;
  const std::string head = AnswerHead(*answer_, framing_, request_id_, stays);
  Buffers buffers = {asio::buffer(head)};
  for (;;) {
    Observe();
    AppendBody(&buffers);
    if (!buffers.empty() && !co_await client_->Write(&buffers)) {
      co_return Ended::kClientGone;
    }
    if (answer_->done()) break;
    const error_code e = co_await ReadAnswer();
    if (client_gone_) co_return Ended::kClientGone;
    if (e || answer_->broken()) co_return Ended::kBroken;
  }
  from_engine_.Consume(std::exchange(parsed_bytes_, 0));
  co_return Ended::kWhole;
}

// The pieces that one read gave, as one chunk where the client is sent chunks:
// where events begin and end is not our affair.
void Exchange::AppendBody(Buffers* buffers) {
  static constexpr absl::string_view kEnd = "0\r\n\r\n";
  static constexpr absl::string_view kBreak = "\r\n";
  if (framing_ == Framing::kNoBody) return;
  const bool chunks = framing_ == Framing::kChunks;
  if (chunks && !pieces_.empty()) {
    size_t bytes = 0;
    for (const absl::string_view piece : pieces_) bytes += piece.size();
    const int n = snprintf(chunk_size_, sizeof(chunk_size_), "%zx\r\n", bytes);
    buffers->push_back(asio::buffer(chunk_size_, static_cast<size_t>(n)));
  }
  for (const absl::string_view piece : pieces_) {
    buffers->push_back(asio::buffer(piece.data(), piece.size()));
  }
  if (!chunks) return;
  if (!pieces_.empty()) buffers->push_back(asio::buffer(kBreak.data(), 2));
  if (answer_->done()) buffers->push_back(asio::buffer(kEnd.data(), 5));
}

void Exchange::Observe() {
  for (const absl::string_view piece : pieces_) meter_.Feed(piece);
  if (pieces_.empty()) return;
  last_ns_ = service_->clock->NowNs();
  // Comments come before the first event, to keep a connection alive.
  const bool token = !facts_.stream || meter_.data_events() > 0;
  if (first_ns_ != 0 || !token) return;
  first_ns_ = last_ns_;
  if (!admitted_ || answer_->status() != 200) return;
  service_->admission->FirstToken(asked_.id);
  service_->metrics.TimeToFirstToken(model_, SecondsSince(started_ns_));
}

// The engine went away after its answer began. A stream ends with an error
// event; nothing can be said in any other body, so that the client must see it
// cut short.
asio::awaitable<void> Exchange::EndBrokenStream() {
  const ApiError error = EngineGone(model_);
  if (!head_sent_) {
    co_await Fail(error);
    co_return;
  }
  const bool events =
      absl::StartsWith(answer_->Field("content-type"), "text/event-stream");
  closes_ = !events || framing_ != Framing::kChunks;
  if (!events || framing_ == Framing::kLength) co_return;
  const std::string event = ErrorEvent(error, meter_.between_events());
  const std::string text = framing_ == Framing::kChunks
                               ? absl::StrCat(absl::Hex(event.size()), "\r\n",
                                              event, "\r\n0\r\n\r\n")
                               : event;
  Buffers buffers = {asio::buffer(text)};
  if (!co_await client_->Write(&buffers)) closes_ = true;
}

}  // namespace fineserve::proxy
