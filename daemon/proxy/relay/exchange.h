#ifndef DAEMON_PROXY_RELAY_EXCHANGE_H_
#define DAEMON_PROXY_RELAY_EXCHANGE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/base/http/head.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/base/http/response_parser.h"
#include "daemon/base/http/socket_io.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/page/traffic.h"
#include "daemon/proxy/relay/answer_meter.h"
#include "daemon/proxy/relay/connection.h"
#include "daemon/proxy/relay/conversation.h"
#include "daemon/proxy/relay/engine_patience.h"
#include "daemon/proxy/relay/service.h"
#include "daemon/proxy/request/request_facts.h"

namespace fineserve::proxy {

// One request on its way to an engine, and the answer on its way back:
//
//   read the facts -> count the prompt -> ask admission -> send to the engine
//   -> relay the answer
//
// The request and the answer's beginning are held until the answer shows
// something of the engine's own (AnswerStart). If an engine fails before that,
// another one takes the request, up to Life::kMostAttempts in all; if there is
// no other, the client gets the engine's own error. After that the client gets
// an error event (in a stream) or a truncated answer, never a second beginning.
// If one side goes away, the connection to the other is closed. Later, only the
// bytes of one read are held. Confined to the proxy's thread.
//
// Conversation owns the talk with servers. The rest is one class in files by
// subject: each step reads what the request asks for (`asked_`), and how far it
// has come decides about the answer, the record and the bill together.
class Exchange {
 public:
  // The pointers must outlive this object. `request` has been read whole.
  Exchange(Connection* client, Service* service, RequestParser* request,
           Route route, std::string request_id, Life* life);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Returns true if the client's connection can take another request.
  asio::awaitable<bool> Run();
  // The same for a Route::kResponse: vLLM keeps a response in the server that
  // made it, so engines are asked in turn until one has it.
  asio::awaitable<bool> RunLookup();

 private:
  using Ended = Conversation::Ended;
  using Server = Conversation::Server;

  bool ClientStays() const;
  void DropBody();
  asio::awaitable<absl::StatusOr<RequestFacts>> ReadBody();
  absl::optional<ApiError> ReadRequest(absl::StatusOr<RequestFacts> facts);
  absl::optional<ApiError> ReadForOutside(const config::OutsideModel& outside);
  void SetSlos(const config::FleetModel& model);
  absl::optional<ApiError> ReadTerms();
  asio::awaitable<bool> Attempt();
  asio::awaitable<bool> Choose();
  asio::awaitable<bool> ChooseInTurn();
  void ForwardTo(const config::FleetEngine& engine);
  asio::awaitable<Verdict> Decide();
  asio::awaitable<bool> Conclude(Ended ended);
  bool MayRetry() const;

  // Fallback: another model takes a request in place of its own model
  // (outside.cc).
  bool MayFallBack() const;
  bool FallBack(const ApiError& refusal);
  void GoOutside(const config::OutsideModel& outside);
  asio::awaitable<bool> AttemptOutside();
  asio::awaitable<Ended> ForwardOutside(const config::OutsideModel& outside);
  bool FailsOutside();
  bool AnotherServes() const;
  ApiError NoAnswer() const;
  ApiError EngineGone() const;
  void ReportEngine();
  asio::awaitable<bool> Fail(const ApiError& error);
  void ClientGone();
  void CountClientGone();

  asio::awaitable<void> CountPrompt();
  asio::awaitable<absl::optional<uint32_t>> AskForCount();
  void TellUncounted(const std::string& engine, bool answered);
  void Learn(uint32_t prompt_tokens);
  const config::FleetEngine* EngineInTurn();

  // An engine's answer to the question whether it has a response.
  enum class Holding { kHas, kHasNot, kUnknown };
  asio::awaitable<Holding> AskForResponse(const config::FleetEngine& engine);
  asio::awaitable<void> RelayResponse(const config::FleetEngine& engine);

  std::string HeadFor(const Server& engine, absl::string_view target) const;
  asio::awaitable<Ended> Forward(const config::FleetEngine& engine);
  asio::awaitable<Ended> Carry(Server server, std::string head);
  asio::awaitable<Ended> Converse(const config::FleetEngine& engine,
                                  absl::string_view target,
                                  Conversation::Patience patience);
  asio::awaitable<Ended> AwaitStart();
  void CheckEngine(uint64_t now_ns);
  asio::awaitable<Ended> Relay();
  asio::awaitable<void> EndBrokenStream();
  void AppendBody(Buffers* buffers);
  void Observe();

  void BeginAttempt();
  // Begins an attempt, in the record too.
  LifeAttempt& NoteAttempt();
  void NoteVerdict(const Verdict& verdict);
  void NoteEngine(const config::FleetEngine& engine);
  void NoteEnd(Ended ended);
  void EndAttempt(Outcome outcome);
  void CountAnswer();
  void SettleBill();
  uint32_t OutputTokens() const;
  double SecondsSince(uint64_t ns) const;

  Connection* const client_;
  Service* const service_;
  RequestParser* const request_;
  const Route route_;
  const std::string request_id_;
  Life* const life_;

  const uint64_t started_ns_;
  Conversation talk_;
  Journey journey_;
  RequestFacts facts_;
  bool counts_prompt_ = false;  // an engine is asked to count the prompt
  bool counted_ = false;        // and has counted it
  std::string model_;           // empty until it is known to be in the fleet
  int64_t slo_ttft_us_ = 0;
  int64_t slo_tpot_us_ = 0;
  AdmissionRequest asked_;
  Bill bill_;
  bool waiting_ = false;   // for a verdict
  bool admitted_ = false;  // or forwarded, and not yet finished
  absl::optional<Verdict> verdict_;
  Wakeup decided_;
  bool client_gone_ = false;
  bool closes_ = false;  // the client's connection is to be closed
  size_t attempts_ = 0;
  // The error for a request if each fallback fails, too.
  absl::optional<ApiError> refused_;
  bool falls_back_ = false;  // now
  bool is_outside_ = false;  // model_ is one outside the fleet

  std::string engine_name_;
  uint64_t awaits_since_ns_ = 0;  // something of the engine; 0: does not
  std::string held_;        // of the body, before the engine's own beginning
  bool head_sent_ = false;  // to the client
  Framing framing_ = Framing::kNoBody;
  char chunk_size_[24];
  AnswerMeter meter_;
  uint64_t first_ns_ = 0;  // of the body
  uint64_t last_ns_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_EXCHANGE_H_
