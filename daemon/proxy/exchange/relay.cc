// The half of an Exchange that talks to the engine.

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/log/log.h"
#include "daemon/proxy/exchange/answer_meter.h"
#include "daemon/proxy/exchange/exchange.h"
#include "daemon/proxy/exchange/note.h"
#include "daemon/proxy/request/routes.h"

namespace fineserve::proxy {
namespace {

constexpr size_t kLeastReadBytes = 4096;
constexpr size_t kMostReadBytes = 64 << 10;
// Bytes of comments and early events. An answer that begins with more passes.
constexpr size_t kMostHeldBytes = 64 << 10;

bool IsInformational(unsigned status) { return status / 100 == 1; }

}  // namespace

std::string Exchange::Server::Authority() const {
  return tls && port == 443 ? host : absl::StrCat(host, ":", port);
}

// One attempt on one engine.
asio::awaitable<Exchange::Ended> Exchange::Forward(
    const config::FleetEngine& engine) {
  const Server server = {engine.host, engine.port};
  const std::string head = HeadFor(server, request_->target());
  co_return co_await Carry(server, head);
}

// Sends the server this head and the request's body, and the client the answer.
asio::awaitable<Exchange::Ended> Exchange::Carry(const Server& server,
                                                 const std::string& head) {
  const Patience patience = {service_->limits.connect_s, 0};
  answered_ = false;  // by this one
  awaits_since_ns_ = service_->clock->NowNs();
  Ended ended = co_await Reach(server, head, patience);
  if (ended == Ended::kWhole) {
    life_->attempt().head_ns = service_->clock->NowNs();
    ended = co_await AwaitStart();
  }
  awaits_since_ns_ = 0;
  if (ended != Ended::kWhole) co_return ended;
  if (is_outside_ && FailsOutside()) co_return Ended::kNotAnswered;
  DropBody();  // it will not be sent again
  ended = co_await Relay();
  if (ended == Ended::kWhole) KeepEngine();
  engine_.reset();
  co_return ended;
}

// The request's head for an engine, for `target`.
std::string Exchange::HeadFor(const Server& engine,
                              absl::string_view target) const {
  const std::string authority = engine.Authority();
  const std::string traceparent = ParentForEngine(*life_);
  return RequestHead(
      *request_,
      {authority, request_id_, request_->body()->size(),
       !service_->routes->keys().is_open(), target, traceparent,
       !traceparent.empty() && life_->parent_span_id.empty(), service_->via});
}

// Sends the engine the request, for `target`. kWhole: the head of its answer
// has come.
asio::awaitable<Exchange::Ended> Exchange::Converse(
    const config::FleetEngine& engine, absl::string_view target,
    Patience patience) {
  const Server server = {engine.host, engine.port};
  const std::string head = HeadFor(server, target);
  co_return co_await Reach(server, head, patience);
}

// Sends a server this head and the request's body. kWhole: the head of its
// answer has come. A kept connection that the server has closed in the meantime
// says nothing about it, and a new connection is tried. A connection that was
// closed on this side was closed for a reason: the client has gone, or the
// server's time is over.
asio::awaitable<Exchange::Ended> Exchange::Reach(const Server& server,
                                                 const std::string& head,
                                                 Patience patience) {
  reached_ = absl::StrCat(server.tls ? "https://" : "", server.Authority());
  engine_ = service_->engines.Take(reached_);
  bool reused = engine_.has_value();
  for (;;) {
    if (!reused && !co_await Open(server, patience.to_accept)) {
      error_ = EngineError::kConnect;
      co_return Ended::kNotAnswered;
    }
    if (patience.to_answer != 0) client_->Guard(&*engine_, patience.to_answer);
    const Ended ended = co_await Ask(head);
    const bool again =
        ended == Ended::kNotAnswered && reused && engine_->is_open();
    if (!again) co_return ended;
    error_.reset();
    reused = false;
  }
}

// Opens a new connection.
asio::awaitable<bool> Exchange::Open(Server server, uint32_t seconds) {
  engine_.emplace(client_->executor());
  client_->Guard(&*engine_, seconds);
  const error_code e = co_await Connect(&*engine_, server.host, server.port);
  client_->Unguard();
  if (e || client_gone_) co_return false;
  Prepare(&*engine_);
  WatchLink(&*engine_);
  if (!server.tls) co_return true;
  absl::StatusOr<tcp::socket> plain =
      co_await service_->tls.Wrap(*std::move(engine_), server.host);
  engine_.reset();
  if (!plain.ok()) {
    log::Warning("{}", std::string(plain.status().message()));
    co_return false;
  }
  engine_.emplace(*std::move(plain));
  co_return !client_gone_;
}

// Keeps the connection for another request if the answer was read whole and the
// engine keeps it open.
void Exchange::KeepEngine() {
  from_engine_.Consume(std::exchange(parsed_bytes_, 0));
  // A client that goes closes it.
  if (client_gone_ || !engine_->is_open()) return;
  if (!answer_->keep_alive() || !from_engine_.empty()) return;
  service_->engines.Keep(reached_, *std::move(engine_),
                         service_->clock->NowNs());
}

// kWhole: the head of an answer has come.
asio::awaitable<Exchange::Ended> Exchange::Ask(const std::string& head) {
  from_engine_ = ByteBuffer();
  read_bytes_ = kLeastReadBytes;
  parsed_bytes_ = 0;
  answered_ = false;
  Buffers buffers = {asio::buffer(head)};
  if (!request_->body()->empty()) {
    buffers.push_back(asio::buffer(*request_->body()));
  }
  error_code e = WriteNow(&*engine_, &buffers);
  if (!e && !buffers.empty()) {
    e = co_await WriteRest(&*engine_, &buffers, [](size_t) {});
  }
  // An engine may refuse a large body before it has all of it. Its answer can
  // be read even if the write failed.
  co_return co_await AwaitAnswer();
}

asio::awaitable<Exchange::Ended> Exchange::AwaitAnswer() {
  const bool to_head = request_->method() == "HEAD";
  do {
    answer_.emplace(service_->limits.header_bytes, to_head);
    Parse();  // the next answer may have come behind an informational one
    error_code e;
    while (!e && !answer_->broken() && !answer_->header_done()) {
      e = co_await ReadAnswer();
    }
    if (client_gone_) co_return Ended::kClientGone;
    if (e || answer_->broken()) co_return Cut();
  } while (IsInformational(answer_->status()));
  co_return Ended::kWhole;
}

// The engine's connection has failed.
Exchange::Ended Exchange::Cut() {
  if (!error_) error_ = EngineError::kReset;
  return answered_ ? Ended::kBroken : Ended::kNotAnswered;
}

bool Exchange::IsEventStream() const {
  return absl::StartsWith(answer_->Field("content-type"), "text/event-stream");
}

// Holds what comes until it shows whether the engine answers. kWhole: what has
// come of the body is in pieces_, to be relayed.
asio::awaitable<Exchange::Ended> Exchange::AwaitStart() {
  AnswerStart start(answer_->status(), IsEventStream());
  held_.clear();
  for (;;) {
    for (const absl::string_view piece : pieces_) start.Feed(piece);
    if (start.is_known() || answer_->done() || held_.size() > kMostHeldBytes) {
      break;
    }
    for (const absl::string_view piece : pieces_) {
      held_.append(piece.data(), piece.size());
    }
    const error_code e = co_await ReadAnswer();
    if (client_gone_) co_return Ended::kClientGone;
    if (e || answer_->broken()) co_return Cut();
  }
  error_ = start.error();
  // Its own error is the client's only if there is nothing better.
  if (error_ && (MayRetry() || MayFallBack() || refused_)) {
    co_return Ended::kNotAnswered;
  }
  if (!error_) service_->admission->Answered(engine_name_);
  if (!held_.empty()) pieces_.insert(pieces_.begin(), held_);
  co_return Ended::kWhole;
}

// Gives an engine up that shows no sign of life.
void Exchange::CheckEngine(uint64_t now_ns) {
  if (awaits_since_ns_ == 0 || !engine_) return;
  const EngineSigns signs = service_->admission->Signs(engine_name_);
  EngineWait wait;
  wait.since_ns = awaits_since_ns_;
  wait.progressed_ns = signs.progressed_ns;
  wait.slo_ends_ns =
      asked_.arrived_ns + static_cast<uint64_t>(slo_ttft_us_) * 1000;
  wait.unanswered_ns = signs.unanswered_ns;
  wait.streams = facts_.stream;
  wait.movable =
      !head_sent_ && attempts_ < Life::kMostAttempts && AnotherServes();
  const uint64_t limit_ns =
      service_->routes->fleet()->proxy.engine_timeout_s * 1'000'000'000ull;
  const NextStep step = StepOf(wait, limit_ns, now_ns);
  if (step == NextStep::kProbe) service_->admission->Suspect(engine_name_);
  if (step != NextStep::kGiveUp) return;
  error_ = EngineError::kTimeout;
  error_code ignored;
  engine_->close(ignored);
}

// Waits for more of the answer. Use pieces_ before the next call, which forgets
// them.
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
  const std::string head =
      AnswerHead(*answer_, framing_, request_id_, stays, client_->cors(),
                 is_outside_ ? AnswerFields::kContent : AnswerFields::kAll,
                 refused_ ? model_ : "");
  Buffers buffers = {asio::buffer(head)};
  life_->status = answer_->status();
  for (;;) {
    Observe();
    AppendBody(&buffers);
    if (!buffers.empty() && !co_await client_->Write(&buffers)) {
      co_return Ended::kClientGone;
    }
    if (answer_->done()) break;
    awaits_since_ns_ = service_->clock->NowNs();
    const error_code e = co_await ReadAnswer();
    awaits_since_ns_ = 0;
    if (client_gone_) co_return Ended::kClientGone;
    if (e || answer_->broken()) co_return Cut();
  }
  // It has passed, but says that the engine did not do what it began.
  if (!error_ && IsEventStream() && meter_.has_error()) {
    error_ = EngineError::kEvent;
  }
  co_return Ended::kWhole;
}

// Appends the pieces that one read gave, as one chunk if the client is sent
// chunks. The borders of events do not matter here.
void Exchange::AppendBody(Buffers* buffers) {
  static constexpr absl::string_view kEnd = "0\r\n\r\n";
  static constexpr absl::string_view kBreak = "\r\n";
  if (framing_ == Framing::kNoBody) return;
  const bool chunks = framing_ == Framing::kChunks;
  if (chunks && !pieces_.empty()) {
    size_t bytes = 0;
    for (const absl::string_view piece : pieces_) bytes += piece.size();
    char* const end =
        std::to_chars(chunk_size_, std::end(chunk_size_), bytes, 16).ptr;
    buffers->push_back(asio::buffer(chunk_size_, end - chunk_size_));
    buffers->push_back(asio::buffer(kBreak.data(), 2));
  }
  for (const absl::string_view piece : pieces_) {
    buffers->push_back(asio::buffer(piece.data(), piece.size()));
  }
  if (!chunks) return;
  if (!pieces_.empty()) buffers->push_back(asio::buffer(kBreak.data(), 2));
  if (answer_->done()) buffers->push_back(asio::buffer(kEnd.data(), 5));
}

void Exchange::Observe() {
  for (const absl::string_view piece : pieces_) {
    meter_.Feed(piece);
    life_->bytes_out += piece.size();
  }
  if (pieces_.empty()) return;
  life_->last_ns = last_ns_ = service_->clock->NowNs();
  const uint32_t events = meter_.token_events();
  bill_.Generated(events, absl::Now());
  // Engines may send comments before the first event, to keep the connection
  // alive.
  if (facts_.stream && events == 0) return;
  const bool first = first_ns_ == 0;
  if (first) life_->first_ns = first_ns_ = last_ns_;
  // An answer that comes whole does not show when its first token came.
  if (route_ != Route::kAdmitted || !facts_.stream ||
      answer_->status() != 200 || error_) {
    return;
  }
  if (first) {
    journey_.HasFirstToken();
    service_->admission->FirstToken(asked_.id);
    service_->metrics.TimeToFirstToken(model_, SecondsSince(started_ns_));
  }
  service_->admission->Progress(asked_.id, events);
}

ApiError Exchange::EngineGone() const {
  return ServerError(
      502, "engine_gone",
      absl::StrCat("the engine that serves ", model_, " went away; try again"));
}

// The engine went away after its answer began. A stream ends with an error
// event. Other bodies have no place for an error, so the client must see them
// truncated.
asio::awaitable<void> Exchange::EndBrokenStream() {
  const bool events = IsEventStream();
  closes_ = !events || framing_ != Framing::kChunks;
  if (!events || framing_ == Framing::kLength) co_return;
  const std::string event = ErrorEvent(EngineGone(), meter_.between_events(),
                                       IsAnthropic(request_->target()));
  const std::string text = framing_ == Framing::kChunks
                               ? absl::StrCat(absl::Hex(event.size()), "\r\n",
                                              event, "\r\n0\r\n\r\n")
                               : event;
  Buffers buffers = {asio::buffer(text)};
  if (!co_await client_->Write(&buffers)) closes_ = true;
}

}  // namespace fineserve::proxy
