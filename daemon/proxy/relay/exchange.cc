#include "daemon/proxy/relay/exchange.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/log/log.h"
#include "daemon/proxy/admission/refusal_error.h"
#include "daemon/proxy/relay/note.h"
#include "daemon/proxy/request/request_facts.h"
#include "daemon/proxy/request/service_fields.h"

namespace fineserve::proxy {
namespace {

// Heuristic: a larger body is read on another thread, because a body of numbers
// would hold up the loop for more than a millisecond.
constexpr size_t kMostReadAtOnce = 64 << 10;
// nginx's status for a client that went away.
constexpr unsigned kClientClosed = 499;

// Lowers the thread's priority: if there are fewer processors than threads, the
// threads that read bodies wait for the loop, and not the loop for them.
void YieldToLoop() {
  constexpr int kNice = 10;
  static thread_local const bool yields =
      setpriority(PRIO_PROCESS, 0 /* this thread */, kNice) == 0;
  static_cast<void>(yields);
}

// Reads the facts of a body. An engine knows its model by one name, which
// replaces an alias in the body. It knows each adapter by the adapter's name,
// and each adapter has a separate cache.
absl::StatusOr<RequestFacts> ReadFactsFor(const Routes& routes,
                                          absl::string_view content_type,
                                          std::string* body) {
  const bool is_form = IsForm(content_type);
  absl::StatusOr<RequestFacts> facts =
      is_form ? ReadFormFacts(content_type, *body) : ReadFacts(body);
  if (!facts.ok() || facts->model.empty()) return facts;
  const config::FleetModel* const model = routes.Model(facts->model);
  if (model == nullptr || model->name == facts->model) return facts;
  if (model->IsAdapter(facts->model)) {
    facts->prefix.SetAdapter(facts->model);
  } else {
    RenameModel(model->name, is_form, &*facts, body);
  }
  return facts;
}

// Returns the session's id, by the field names that clients and other gateways
// use.
absl::string_view SessionOf(const RequestParser& request) {
  for (const char* const name :
       {"x-session-id", "x-litellm-session-id", "x-smg-routing-key"}) {
    const absl::string_view id = request.Field(name);
    if (!id.empty()) return id;
  }
  return "";
}

ApiError NoEngine(const std::string& model) {
  Verdict verdict;
  verdict.refusal = Refusal::kNoEngine;
  verdict.why = absl::StrCat("no engine of ", model, " answers; try again");
  return RefusalError(verdict);
}

}  // namespace

Exchange::Exchange(Connection* client, Service* service, RequestParser* request,
                   Route route, std::string request_id, Life* life)
    : client_(client),
      service_(service),
      request_(request),
      route_(route),
      request_id_(std::move(request_id)),
      life_(life),
      started_ns_(service->clock->NowNs()),
      talk_(client, service, request),
      journey_(&service->traffic, service->clock) {
  life_->read_ns = started_ns_;
  life_->bytes_in = request_->body()->size();
}

Exchange::~Exchange() {
  client_->Unwatch();
  client_->Unguard();
  client_->SetCheck(nullptr);
  // Only when the proxy is torn down is there still something to do here.
  if (waiting_) service_->admission->Cancel(asked_.id);
  EndAttempt(Outcome::kClientGone);
  DropBody();
}

// Frees the body, on another thread if it is large.
void Exchange::DropBody() {
  std::string body = request_->TakeBody();
  if (body.size() <= kMostReadAtOnce) return;
  asio::post(*service_->readers, [body = std::move(body)] {});
}

asio::awaitable<bool> Exchange::Run() {
  const absl::optional<ApiError> refusal = ReadRequest(co_await ReadBody());
  if (refusal) co_return co_await Fail(*refusal);
  client_->Watch([this] { ClientGone(); });
  if (route_ == Route::kAdmitted) co_await CountPrompt();
  if (client_gone_) {
    CountClientGone();
    co_return false;
  }
  while (co_await Attempt()) {
  }
  SettleBill();
  co_return ClientStays();
}

bool Exchange::ClientStays() const {
  return !client_gone_ && !closes_ && client_->Stays(*request_) &&
         framing_ != Framing::kEndOfConnection;
}

asio::awaitable<absl::StatusOr<RequestFacts>> Exchange::ReadBody() {
  const absl::string_view type = request_->Field("content-type");
  std::string* const body = request_->body();
  const std::shared_ptr<const Routes> held = service_->routes;
  const Routes* const routes = held.get();
  const auto read = [=] { return ReadFactsFor(*routes, type, body); };
  if (body->size() <= kMostReadAtOnce) co_return read();
  co_return co_await asio::co_spawn(
      service_->readers->get_executor(),
      [=]() -> asio::awaitable<absl::StatusOr<RequestFacts>> {
        YieldToLoop();
        co_return read();
      },
      asio::use_awaitable);
}

// Finds what the request asks for. An error if that cannot be served.
absl::optional<ApiError> Exchange::ReadRequest(
    absl::StatusOr<RequestFacts> facts) {
  if (!facts.ok() && route_ == Route::kAdmitted) {
    const bool is_form = IsForm(request_->Field("content-type"));
    return ClientError(400, is_form ? "bad_form" : "bad_json",
                       facts.status().message());
  }
  if (facts.ok()) facts_ = *std::move(facts);
  const config::OutsideModel* const outside =
      service_->routes->fleet()->Outside(facts_.model);
  if (outside != nullptr) return ReadForOutside(*outside);
  const auto model = service_->routes->ModelFor(facts_.model);
  if (const auto* error = absl::get_if<ApiError>(&model)) return *error;
  const config::FleetModel& found =
      *absl::get<const config::FleetModel*>(model);
  model_ = facts_.model = found.name;
  life_->model = model_;
  life_->stream = facts_.stream;
  if (auto refusal = ReadTerms()) return refusal;
  SetSlos(found);
  asked_.model = model_;
  asked_.max_tokens = facts_.max_tokens;
  asked_.prompt_tokens = service_->estimator.Estimate(facts_);
  asked_.arrived_ns = started_ns_;
  asked_.prefix = std::move(facts_.prefix);
  asked_.prefix.SetSession(SessionOf(*request_));
  asked_.name = request_id_;
  counts_prompt_ = found.counts_prompts && facts_.prompt_tokens == 0 &&
                   IsTokenizable(request_->target());
  return absl::nullopt;
}

// Sets the request's own SLOs, or else the model's.
void Exchange::SetSlos(const config::FleetModel& model) {
  slo_ttft_us_ = asked_.slo_ttft_us != 0 ? asked_.slo_ttft_us
                                         : model.slo_ttft_ms * int64_t{1000};
  slo_tpot_us_ = asked_.slo_tpot_us != 0 ? asked_.slo_tpot_us
                                         : model.slo_tpot_ms * int64_t{1000};
  journey_.IsFor(model.name, slo_ttft_us_);
}

// Finds how the client may be served, and opens its bill.
absl::optional<ApiError> Exchange::ReadTerms() {
  const Routes& routes = *service_->routes;
  const std::shared_ptr<const Client> client = routes.ClientOf(*request_);
  // A reload may have taken the key since the request's header was read.
  if (auto refusal = RefuseByKey(client.get(), absl::Now())) return refusal;
  life_->key = client->name;
  const absl::Status s = ReadServiceFields(
      *request_, *client,
      client->trusted || routes.fleet()->proxy.all_may_set_service, &asked_);
  if (!s.ok()) return ClientError(400, "bad_header", s.message());
  // A background request would be answered before it has cost anything.
  if (facts_.background && client->IsLimited()) {
    return ClientError(403, "background_not_allowed",
                       "a key with limits may not ask in the background");
  }
  auto bill = service_->accounts.OpenBill(*client, model_, absl::Now());
  if (auto* refusal = absl::get_if<ApiError>(&bill)) return *refusal;
  bill_ = absl::get<Bill>(std::move(bill));
  return absl::nullopt;
}

// True if the request is to be tried once more.
asio::awaitable<bool> Exchange::Attempt() {
  if (is_outside_) co_return co_await AttemptOutside();
  if (!co_await Choose()) co_return std::exchange(falls_back_, false);
  const std::shared_ptr<const Routes> routes = service_->routes;
  const config::FleetEngine* engine = routes->Engine(engine_name_);
  if (engine != nullptr) NoteEngine(*engine);
  BeginAttempt();
  Ended ended = Ended::kNotAnswered;
  if (engine != nullptr && !client_gone_) ended = co_await Forward(*engine);
  if (client_gone_) ended = Ended::kClientGone;
  co_return co_await Conclude(ended);
}

// Chooses the engine. Returns false if there is none; the client then has its
// error or is gone.
asio::awaitable<bool> Exchange::Choose() {
  NoteAttempt();
  if (route_ == Route::kForwarded) co_return co_await ChooseInTurn();
  const Verdict verdict = co_await Decide();
  NoteVerdict(verdict);
  // Even if the client has just gone away, its request was admitted, and
  // admission must learn of its end.
  admitted_ = verdict.admitted;
  engine_name_ = verdict.engine;
  if (client_gone_) co_return admitted_;
  service_->metrics.QueueTime(model_, SecondsSince(started_ns_));
  if (verdict.unscheduled) service_->metrics.CountUnscheduled(model_);
  if (!verdict.admitted) {
    const ApiError refusal = RefusalError(verdict);
    falls_back_ = FallBack(refusal);
    if (!falls_back_) co_await Fail(refusal);
    co_return false;
  }
  co_return true;
}

// Chooses the engine for a request that needs no admission. The request waits
// only for an engine that is started for it.
asio::awaitable<bool> Exchange::ChooseInTurn() {
  if (service_->admission->AwaitsStart(model_)) {
    asked_.is_forwarded = true;
    const Verdict verdict = co_await Decide();
    NoteVerdict(verdict);
    if (!verdict.admitted) {
      if (!client_gone_) co_await Fail(RefusalError(verdict));
      co_return false;
    }
  }
  const config::FleetEngine* engine = EngineInTurn();
  if (engine == nullptr) {
    co_await Fail(NoEngine(model_));
    co_return false;
  }
  ForwardTo(*engine);
  co_return true;
}

// Makes admission count the request among those that run on the engine.
void Exchange::ForwardTo(const config::FleetEngine& engine) {
  engine_name_ = engine.name;
  asked_.id = ++service_->last_request;
  admitted_ = true;
  service_->admission->Forwards(asked_.id, engine_name_);
  service_->metrics.CountForwarded(model_);
}

// Returns an engine for a request that needs no admission. An engine that the
// plan closes to new requests (it ends soon) is better than one that does not
// answer, and an engine that does not answer is better than the one that has
// just failed this request.
const config::FleetEngine* Exchange::EngineInTurn() {
  const Admission& admission = *service_->admission;
  return service_->routes->EngineInTurn(
      model_, service_->turn++, [&](const std::string& engine) {
        if (engine == asked_.avoid_engine) return 0;
        return admission.Serves(engine) ? 2 + admission.LetsIn(engine) : 1;
      });
}

// True if another engine of the model may take the request.
bool Exchange::AnotherServes() const {
  const std::shared_ptr<const config::Fleet>& fleet = service_->routes->fleet();
  return std::any_of(fleet->engines.begin(), fleet->engines.end(),
                     [&](const config::FleetEngine& engine) {
                       return engine.model == model_ &&
                              engine.name != engine_name_ &&
                              service_->admission->Serves(engine.name) &&
                              service_->admission->LetsIn(engine.name);
                     });
}

asio::awaitable<Verdict> Exchange::Decide() {
  asked_.id = ++service_->last_request;
  life_->attempt().asked_ns = service_->clock->NowNs();
  verdict_.reset();
  waiting_ = true;
  journey_.Asks();
  service_->admission->Submit(asked_, [this](Verdict verdict) {
    waiting_ = false;
    verdict_ = std::move(verdict);
    decided_.Set();
  });
  co_await decided_.Wait();
  if (verdict_) {
    journey_.IsDecided(verdict_->admitted, verdict_->unscheduled);
    if (verdict_->slo_begins_ns != 0) {
      asked_.arrived_ns = verdict_->slo_begins_ns;
      journey_.SloBeganAt(verdict_->slo_begins_ns);
    }
  }
  co_return verdict_.value_or(Verdict());
}

void Exchange::ClientGone() {
  client_gone_ = true;
  if (waiting_) {
    waiting_ = false;
    service_->admission->Cancel(asked_.id);
    CountClientGone();
    decided_.Set();
  }
  talk_.Abandon();
}

void Exchange::CountClientGone() {
  life_->ending = Ending::kClientLeft;
  life_->status = kClientClosed;
  service_->metrics.CountRequest(model_, kClientClosed);
}

void Exchange::BeginAttempt() {
  ++attempts_;
  talk_.SetError(absl::nullopt);
  journey_.IsSent();
  // A forwarded request is charged later: its engine only reads, and reports
  // the cost itself.
  if (!client_gone_) {
    bill_.Begin(route_ == Route::kAdmitted ? asked_.prompt_tokens : 0,
                absl::Now());
  }
  service_->metrics.AddRunning(1);
  service_->admission->Sent(engine_name_);
  client_->SetCheck([this](uint64_t now_ns) { CheckEngine(now_ns); });
}

void Exchange::EndAttempt(Outcome outcome) {
  talk_.End();
  client_->SetCheck(nullptr);
  if (!admitted_) return;
  admitted_ = false;
  service_->admission->Finished(asked_.id, life_->tokens_in, life_->tokens_out,
                                outcome);
}

// Reports the end of an attempt to admission, metrics and client. True if
// another attempt should follow.
asio::awaitable<bool> Exchange::Conclude(Ended ended) {
  service_->metrics.AddRunning(-1);
  journey_.LeavesEngine();
  if (ended == Ended::kClientGone) talk_.SetError(absl::nullopt);
  NoteEnd(ended);
  const bool failed = ended == Ended::kNotAnswered || ended == Ended::kBroken;
  EndAttempt(failed || talk_.error()       ? Outcome::kEngineGone
             : ended == Ended::kClientGone ? Outcome::kClientGone
                                           : Outcome::kDone);
  if (talk_.error()) ReportEngine();
  if (failed && MayRetry()) {
    asked_.avoid_engine = engine_name_;
    service_->metrics.CountRetry(model_);
    co_return true;
  }
  if (failed && !head_sent_ && FallBack(NoAnswer())) co_return true;
  switch (ended) {
    case Ended::kWhole:
      CountAnswer();
      break;
    case Ended::kClientGone:
      client_gone_ = true;
      CountClientGone();
      break;
    case Ended::kBroken:
      if (head_sent_) {
        service_->metrics.CountRequest(model_, 502);
        co_await EndBrokenStream();
        life_->ending = Ending::kEngineDied;
        break;
      }
      [[fallthrough]];
    case Ended::kNotAnswered:
      co_await Fail(NoAnswer());
      life_->ending = Ending::kEngineDied;
  }
  co_return false;
}

// Charges the engine's usage if it stated one; otherwise the estimated prompt,
// and the part of the answer that has come. A request that failed before its
// first token, or was finally refused, costs nothing. If its client left while
// an engine worked, it costs its prompt.
void Exchange::SettleBill() {
  const ResponseParser* const answer = talk_.answer();
  const bool is_good =
      answer != nullptr && answer->status() == 200 && !talk_.error();
  if (head_sent_ ? !is_good && meter_.token_events() == 0 : !client_gone_) {
    bill_.Settle(0, 0, absl::Now());
  } else if (head_sent_ && life_->tokens_in != 0 && is_good) {
    bill_.Settle(life_->tokens_in, life_->tokens_out, absl::Now());
  } else if (head_sent_) {
    bill_.Generated(OutputTokens(), absl::Now());
  }
  if (life_->key.empty() || !bill_.begun()) return;
  service_->metrics.CountSpending(life_->key, bill_.prompt_tokens(),
                                  bill_.output_tokens());
}

// Returns the tokens of an answer without usage: a stream's events, else as
// many as its bytes would make, but at most those that were asked for.
uint32_t Exchange::OutputTokens() const {
  if (facts_.stream) return meter_.token_events();
  if (route_ != Route::kAdmitted) return 0;
  const double tokens = static_cast<double>(life_->bytes_out) /
                        service_->estimator.BytesPerToken(model_);
  const double most = facts_.max_tokens != 0 ? facts_.max_tokens : tokens;
  return static_cast<uint32_t>(std::min(tokens, most));
}

void Exchange::ReportEngine() {
  log::Warning("engine {} failed request {}, attempt {}: {}", engine_name_,
               request_id_, attempts_,
               std::string(TextOf(*talk_.error()).word));
  service_->metrics.CountEngineError(engine_name_, *talk_.error());
  service_->admission->Failed(engine_name_, *talk_.error());
}

// A request may be retried while the client has received nothing of an answer.
// If there is no other engine, the same one is tried again, since it may just
// have restarted, unless it answered something or used all the time allowed.
bool Exchange::MayRetry() const {
  // Never for an endpoint outside, since clients try again themselves.
  if (head_sent_ || is_outside_ || attempts_ == Life::kMostAttempts) {
    return false;
  }
  return AnotherServes() ||
         (!talk_.answered() && talk_.error() != EngineError::kTimeout);
}

ApiError Exchange::NoAnswer() const {
  if (talk_.error() != EngineError::kTimeout) {
    return talk_.answered() ? EngineGone() : NoEngine(model_);
  }
  return ServerError(504, "engine_silent",
                     absl::StrCat("the engine that serves ", model_,
                                  " shows no sign of life; try again"));
}

// Sends the client an error instead of an answer.
asio::awaitable<bool> Exchange::Fail(const ApiError& last) {
  const ApiError error = refused_.value_or(last);
  service_->metrics.CountRequest(model_, error.status);
  if (!life_->key.empty()) {
    service_->metrics.CountRefusal(life_->key, error.code);
  }
  NoteRefusal(error, life_);
  framing_ = Framing::kLength;
  const bool stays = co_await client_->Answer(
      *request_, ErrorAnswer(error, IsAnthropic(request_->target())),
      request_id_);
  closes_ |= !stays;
  co_return stays;
}

double Exchange::SecondsSince(uint64_t ns) const {
  return static_cast<double>(service_->clock->NowNs() - ns) * 1e-9;
}

void Exchange::CountAnswer() {
  Metrics& metrics = service_->metrics;
  metrics.CountRequest(model_, talk_.answer()->status());
  if (route_ != Route::kAdmitted || talk_.answer()->status() != 200 ||
      talk_.error())
    return;
  const uint32_t output = life_->tokens_out;
  metrics.CountTokens(model_, life_->tokens_in, output);
  if (life_->tokens_in != 0 && !counted_) Learn(life_->tokens_in);
  if (!facts_.stream || first_ns_ == 0) return;  // no token was seen to come
  if (slo_ttft_us_ != 0 &&
      static_cast<int64_t>((first_ns_ - asked_.arrived_ns) / 1000) >
          slo_ttft_us_) {
    metrics.CountSloViolation(model_, Metrics::Slo::kTtft);
  }
  if (output < 2) return;
  const double tpot_s =
      static_cast<double>(last_ns_ - first_ns_) * 1e-9 / (output - 1);
  metrics.TimePerOutputToken(model_, tpot_s);
  if (slo_tpot_us_ != 0 && tpot_s * 1e6 > static_cast<double>(slo_tpot_us_)) {
    metrics.CountSloViolation(model_, Metrics::Slo::kTpot);
  }
}

}  // namespace fineserve::proxy
