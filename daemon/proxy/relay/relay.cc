// The half of an Exchange that talks to the engine.

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/log/log.h"
#include "daemon/proxy/relay/answer_meter.h"
#include "daemon/proxy/relay/exchange.h"
#include "daemon/proxy/relay/note.h"
#include "daemon/proxy/request/routes.h"

namespace fineserve::proxy {
namespace {

// Limit on the comments and early events that are held back. If an answer
// begins with more, it is passed on.
constexpr size_t kMostHeldBytes = 64 << 10;

}  // namespace

// One attempt on one engine.
asio::awaitable<Exchange::Ended> Exchange::Forward(
    const config::FleetEngine& engine) {
  Server server = {engine.host, engine.port};
  std::string head = HeadFor(server, request_->target());
  return Carry(std::move(server), std::move(head));
}

// Sends the server this head and the request's body, and relays the answer to
// the client.
asio::awaitable<Exchange::Ended> Exchange::Carry(Server server,
                                                 std::string head) {
  const Conversation::Patience patience = {service_->limits.connect_s, 0};
  awaits_since_ns_ = service_->clock->NowNs();
  Ended ended = co_await talk_.Reach(server, head, patience);
  if (ended == Ended::kWhole) {
    life_->attempt().head_ns = service_->clock->NowNs();
    ended = co_await AwaitStart();
  }
  awaits_since_ns_ = 0;
  if (ended != Ended::kWhole) co_return ended;
  if (is_outside_ && FailsOutside()) co_return Ended::kNotAnswered;
  DropBody();  // it will not be sent again
  ended = co_await Relay();
  if (ended == Ended::kWhole) talk_.Keep();
  talk_.End();
  co_return ended;
}

// Returns the head of the request to an engine, for `target`.
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

// Sends the engine the request, for `target`. kWhole: the head of the engine's
// answer has come.
asio::awaitable<Exchange::Ended> Exchange::Converse(
    const config::FleetEngine& engine, absl::string_view target,
    Conversation::Patience patience) {
  const Server server = {engine.host, engine.port};
  const std::string head = HeadFor(server, target);
  co_return co_await talk_.Reach(server, head, patience);
}

// Holds the answer back until it shows whether the engine really answers.
// kWhole: the body so far is in talk_.pieces(), to be relayed.
asio::awaitable<Exchange::Ended> Exchange::AwaitStart() {
  AnswerStart start(talk_.answer()->status(), talk_.IsEventStream());
  held_.clear();
  for (;;) {
    for (const absl::string_view piece : talk_.pieces()) start.Feed(piece);
    if (start.is_known() || talk_.answer()->done() ||
        held_.size() > kMostHeldBytes) {
      break;
    }
    for (const absl::string_view piece : talk_.pieces()) {
      held_.append(piece.data(), piece.size());
    }
    const error_code e = co_await talk_.Read();
    if (client_gone_) co_return Ended::kClientGone;
    if (e || talk_.answer()->broken()) co_return talk_.Cut();
  }
  talk_.SetError(start.error());
  // The client gets the engine's own error only if there is nothing better.
  if (talk_.error() && (MayRetry() || MayFallBack() || refused_)) {
    co_return Ended::kNotAnswered;
  }
  if (!talk_.error()) service_->admission->Answered(engine_name_);
  if (!held_.empty()) talk_.Prepend(held_);
  co_return Ended::kWhole;
}

// Gives up an engine that shows no sign of life.
void Exchange::CheckEngine(uint64_t now_ns) {
  if (awaits_since_ns_ == 0 || !talk_.is_connected()) return;
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
  talk_.GiveUp();
}

asio::awaitable<Exchange::Ended> Exchange::Relay() {
  framing_ = FramingFor(*request_, *talk_.answer());
  head_sent_ = true;
  const bool stays =
      client_->Stays(*request_) && framing_ != Framing::kEndOfConnection;
  const std::string head =
      AnswerHead(*talk_.answer(), framing_, request_id_, stays, client_->cors(),
                 is_outside_ ? AnswerFields::kContent : AnswerFields::kAll,
                 refused_ ? model_ : "");
  Buffers buffers = {asio::buffer(head)};
  life_->status = talk_.answer()->status();
  for (;;) {
    Observe();
    AppendBody(&buffers);
    if (!buffers.empty() && !co_await client_->Write(&buffers)) {
      co_return Ended::kClientGone;
    }
    if (talk_.answer()->done()) break;
    awaits_since_ns_ = service_->clock->NowNs();
    const error_code e = co_await talk_.Read();
    awaits_since_ns_ = 0;
    if (client_gone_) co_return Ended::kClientGone;
    if (e || talk_.answer()->broken()) co_return talk_.Cut();
  }
  // The event has been passed on, but shows that the engine did not finish.
  if (!talk_.error() && talk_.IsEventStream() && meter_.has_error()) {
    talk_.SetError(EngineError::kEvent);
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
  if (chunks && !talk_.pieces().empty()) {
    size_t bytes = 0;
    for (const absl::string_view piece : talk_.pieces()) bytes += piece.size();
    char* const end =
        std::to_chars(chunk_size_, std::end(chunk_size_), bytes, 16).ptr;
    buffers->push_back(asio::buffer(chunk_size_, end - chunk_size_));
    buffers->push_back(asio::buffer(kBreak.data(), 2));
  }
  for (const absl::string_view piece : talk_.pieces()) {
    buffers->push_back(asio::buffer(piece.data(), piece.size()));
  }
  if (!chunks) return;
  if (!talk_.pieces().empty())
    buffers->push_back(asio::buffer(kBreak.data(), 2));
  if (talk_.answer()->done()) buffers->push_back(asio::buffer(kEnd.data(), 5));
}

void Exchange::Observe() {
  for (const absl::string_view piece : talk_.pieces()) {
    meter_.Feed(piece);
    life_->bytes_out += piece.size();
  }
  if (talk_.pieces().empty()) return;
  life_->last_ns = last_ns_ = service_->clock->NowNs();
  const uint32_t events = meter_.token_events();
  if (bill_.begun()) bill_.Generated(events, absl::Now());
  // Engines may send comments before the first event, to keep the connection
  // alive.
  if (facts_.stream && events == 0) return;
  const bool first = first_ns_ == 0;
  if (first) life_->first_ns = first_ns_ = last_ns_;
  // An answer that is not streamed does not show when its first token came.
  if (route_ != Route::kAdmitted || !facts_.stream ||
      talk_.answer()->status() != 200 || talk_.error()) {
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

// Ends an answer whose engine went away after the answer began. A stream ends
// with an error event. Other bodies have no place for an error, so the client
// must see them truncated.
asio::awaitable<void> Exchange::EndBrokenStream() {
  const bool events = talk_.IsEventStream();
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
