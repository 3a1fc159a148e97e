// The parts of connections and exchanges that write the record of a request.

#include "daemon/proxy/relay/connection.h"
#include "daemon/proxy/relay/exchange.h"

namespace fineserve::proxy {
namespace {

// Longer ones are cut off.
constexpr size_t kMostPathBytes = 256;
constexpr size_t kMostMethodBytes = 16;

std::string AddressOf(const tcp::socket& socket) {
  error_code e;
  const tcp::endpoint at = socket.remote_endpoint(e);
  return e ? "" : AddressText(at);
}

}  // namespace

// True if the request is recorded; probes and the admin port are left out.
bool Connection::Records(Route route) const {
  return port_ == Port::kPublic &&
         (GoesToEngine(route) || route == Route::kModels ||
          route == Route::kUnknown);
}

// If `request` is null, it has no header that could be read.
void Connection::BeginRecord(const RequestParser* request,
                             const std::string& request_id) {
  recording_->Begin();
  if (!recording_->begun()) return;
  Life* const life = recording_->life();
  if (address_.empty()) address_ = AddressOf(socket_);
  life->client = address_;
  life->id = request_id;
  if (request == nullptr) return;
  const absl::string_view target = request->target();
  life->method = std::string(request->method().substr(0, kMostMethodBytes));
  life->path =
      std::string(target.substr(0, target.find('?')).substr(0, kMostPathBytes));
  service_->tracer.Begin(*request, life);
}

LifeAttempt& Exchange::NoteAttempt() {
  LifeAttempt& attempt = life_->NextAttempt();
  if (!life_->trace_id.empty()) attempt.span_id = service_->tracer.NewSpanId();
  return attempt;
}

void Exchange::NoteVerdict(const Verdict& verdict) {
  LifeAttempt& attempt = life_->attempt();
  if (!verdict_) return;  // the client left before
  attempt.decided_ns = service_->clock->NowNs();
  attempt.admitted = verdict.admitted;
  attempt.decided_by = verdict.decided_by;
  attempt.waited_for = verdict.waited_for;
  attempt.waited_us = verdict.waited_us;
}

void Exchange::NoteEngine(const config::FleetEngine& engine) {
  LifeAttempt& attempt = life_->attempt();
  attempt.engine = engine.name;
  attempt.gpu = engine.gpu;
  attempt.sent_ns = service_->clock->NowNs();
}

void Exchange::NoteEnd(Ended ended) {
  LifeAttempt& attempt = life_->attempt();
  attempt.ended_ns = service_->clock->NowNs();
  attempt.failed = talk_.error().has_value();
  const absl::optional<Usage> usage = meter_.usage();
  life_->tokens_in = usage ? usage->prompt_tokens : 0;
  life_->tokens_out = usage ? usage->completion_tokens : meter_.token_events();
  if (ended == Ended::kWhole) life_->ending = Ending::kAnswered;
}

}  // namespace fineserve::proxy
