#include "daemon/contract/metrics/metric_list.h"

#include "absl/strings/str_split.h"

namespace fineserve::metrics {
namespace {

constexpr Program kDaemon = Program::kDaemon;
constexpr Program kProxy = Program::kProxy;
constexpr MetricType kCounter = MetricType::kCounter;
constexpr MetricType kGauge = MetricType::kGauge;
constexpr MetricType kHistogram = MetricType::kHistogram;

using Id = MetricId;

// In the order of MetricId. The proxy's page also takes its texts from here.
constexpr Metric kRows[] = {
    // --- fineserved ---
    {Id::kBuildInfo, kDaemon, kGauge, "fineserve_build_info", "1",
     "version,abi,gpu,device,epoch",
     "Which program serves which GPU and pool; always 1"},
    {Id::kStartTime, kDaemon, kGauge, "fineserve_daemon_start_time_seconds",
     "seconds since 1970", "", "When this fineserved started"},
    {Id::kTakeovers, kDaemon, kCounter, "fineserve_takeovers_total",
     "takeovers", "", "Times that another fineserved took this pool over"},
    {Id::kLongestTurn, kDaemon, kGauge, "fineserve_loop_longest_turn_seconds",
     "seconds", "",
     "The longest that one event has kept fineserved from all others"},
    {Id::kScrapes, kDaemon, kCounter, "fineserve_scrapes_total", "scrapes", "",
     "Scrapes of this page that were answered"},
    {Id::kScrapeTime, kDaemon, kCounter, "fineserve_scrape_loop_seconds_total",
     "seconds", "", "Time that scrapes have taken on fineserved's main thread"},
    {Id::kMessagesDropped, kDaemon, kCounter,
     "fineserve_messages_dropped_total", "messages", "",
     "Messages of engines that were malformed, or not from a member"},
    {Id::kPeersRefused, kDaemon, kCounter, "fineserve_peers_refused_total",
     "connections", "",
     "Engines that were refused: another user, another version, no room"},
    // --- the pool ---
    {Id::kPoolSlabs, kDaemon, kGauge, "fineserve_pool_slabs", "slabs", "state",
     "Slabs of the pool by state"},
    {Id::kPoolBytes, kDaemon, kGauge, "fineserve_pool_bytes", "bytes", "state",
     "Bytes of the pool by the state of their slab"},
    {Id::kSlabBytes, kDaemon, kGauge, "fineserve_slab_bytes", "bytes", "",
     "Size of a slab"},
    {Id::kPoolWantedBytes, kDaemon, kGauge, "fineserve_pool_wanted_bytes",
     "bytes", "", "Size that the pool has or is to get"},
    {Id::kLeasesGranted, kDaemon, kCounter, "fineserve_leases_granted_total",
     "leases", "", "Leases granted, of whole slabs and to views"},
    {Id::kLeasesDenied, kDaemon, kCounter, "fineserve_leases_denied_total",
     "requests", "",
     "Requests for whole slabs that were refused: the pool was exhausted"},
    {Id::kHandOvers, kDaemon, kCounter, "fineserve_hand_overs_total", "slabs",
     "", "Slabs leased to another engine than the one that held them last"},
    {Id::kSlabsAskedBack, kDaemon, kCounter, "fineserve_slabs_asked_back_total",
     "slabs", "", "Slabs that views were asked to return"},
    {Id::kSlabsReturned, kDaemon, kCounter, "fineserve_slabs_returned_total",
     "slabs", "", "Slabs that views returned, asked or not"},
    {Id::kSlabsZeroed, kDaemon, kCounter, "fineserve_slabs_zeroed_total",
     "slabs", "", "Slabs filled with zeros before their next lease"},
    {Id::kZeroedBytes, kDaemon, kCounter, "fineserve_zeroed_bytes_total",
     "bytes", "", "Bytes filled with zeros"},
    {Id::kSlabsAdded, kDaemon, kCounter, "fineserve_slabs_added_total", "slabs",
     "", "Slabs by which the pool grew"},
    {Id::kSlabsWithdrawn, kDaemon, kCounter, "fineserve_slabs_withdrawn_total",
     "slabs", "", "Slabs by which the pool shrank"},
    {Id::kAskBackTime, kDaemon, kHistogram, "fineserve_ask_back_seconds",
     "seconds", "", "Time from asking a slab back to its return"},
    {Id::kZeroingTime, kDaemon, kHistogram, "fineserve_zeroing_seconds",
     "seconds", "", "Time from a slab's return until it is zeroed and free"},
    {Id::kSlabsQuarantined, kDaemon, kCounter,
     "fineserve_slabs_quarantined_total", "slabs", "",
     "Slabs quarantined because their engine died"},
    {Id::kQuarantineAge, kDaemon, kGauge, "fineserve_quarantine_age_seconds",
     "seconds", "", "Age of the oldest quarantine; 0 without one"},
    {Id::kProcessListsUseless, kDaemon, kCounter,
     "fineserve_process_lists_useless_total", "lists", "",
     "Lists of GPU processes that the driver refused or that lacked "
     "fineserved: "
     "they end no quarantine"},
    {Id::kMemoryErrors, kDaemon, kCounter, "fineserve_memory_errors_total",
     "errors", "",
     "Uncorrectable errors of the GPU's memory since its driver was loaded, "
     "read when an engine has died"},
    {Id::kFormerPoolProcesses, kDaemon, kGauge,
     "fineserve_former_pool_processes", "processes", "",
     "Processes that still hold a former fineserved's pool of this GPU"},
    // --- engines in the pool ---
    {Id::kEngines, kDaemon, kGauge, "fineserve_engines", "engines", "state",
     "Engines in the pool: alive, or quarantined after their death"},
    {Id::kEngineSlabs, kDaemon, kGauge, "fineserve_engine_slabs", "slabs",
     "engine,model,state", "Slabs that an engine holds, by state"},
    {Id::kEngineBytes, kDaemon, kGauge, "fineserve_engine_bytes", "bytes",
     "engine,model,state", "Bytes of the slabs that an engine holds, by state"},
    {Id::kEngineWantedBytes, kDaemon, kGauge, "fineserve_engine_wanted_bytes",
     "bytes", "engine,model", "What an engine's view could use now"},
    {Id::kEngineTargetBytes, kDaemon, kGauge, "fineserve_engine_target_bytes",
     "bytes", "engine,model", "What the share policy gives an engine's view"},
    {Id::kEngineFloorBytes, kDaemon, kGauge, "fineserve_engine_floor_bytes",
     "bytes", "engine,model", "What an engine's view is to hold at all times"},
    {Id::kEngineFloorUnmetBytes, kDaemon, kGauge,
     "fineserve_engine_floor_unmet_bytes", "bytes", "engine,model",
     "What an active view lacks of its floor"},
    {Id::kFloorsUnmet, kDaemon, kGauge, "fineserve_floors_unmet", "engines", "",
     "Engines whose active view holds less than its floor"},
    {Id::kEngineEvictedBytes, kDaemon, kGauge, "fineserve_engine_evicted_bytes",
     "bytes", "engine,model",
     "What an engine keeps that has left the GPU for the host; 0: none"},
    {Id::kMoves, kDaemon, kCounter, "fineserve_moves_total", "moves", "result",
     "Engines whose memory was evicted, activated, or stayed where it was "
     "because that failed; that dropped their weights for a replica's, or "
     "restored them"},
    {Id::kStoreBytes, kDaemon, kGauge, "fineserve_store_bytes", "bytes",
     "state",
     "Host memory that copies take: needed by engines that are out, or spare "
     "until one leaves again"},
    {Id::kStoreLimitBytes, kDaemon, kGauge, "fineserve_store_limit_bytes",
     "bytes", "", "Host memory that copies may take"},
    {Id::kStoreUnsharedBytes, kDaemon, kGauge, "fineserve_store_unshared_bytes",
     "bytes", "",
     "What engines that are out would take if nothing were shared"},
    {Id::kStoredBytes, kDaemon, kCounter, "fineserve_stored_bytes_total",
     "bytes", "how", "What has left the GPU: copied, or found in the store"},
    {Id::kFilledBytes, kDaemon, kCounter, "fineserve_filled_bytes_total",
     "bytes", "link",
     "What has come back to the GPU: by its own link to the host, or by other "
     "GPUs'"},
    {Id::kEngineSwapTime, kDaemon, kGauge, "fineserve_engine_swap_seconds",
     "seconds", "engine,model",
     "Time for which steps of a guarded or strict view waited while slabs were "
     "mapped and unmapped, since it was registered"},
    {Id::kEngineLongestSwap, kDaemon, kGauge,
     "fineserve_engine_longest_swap_seconds", "seconds", "engine,model",
     "The longest such wait: also that for a driver that frees a dead "
     "process's memory"},
    {Id::kEngineStarts, kDaemon, kCounter, "fineserve_engine_starts_total",
     "starts", "engine", "Times that an engine of this name joined the pool"},
    {Id::kEnginesDied, kDaemon, kCounter, "fineserve_engines_died_total",
     "engines", "", "Engines that died and left slabs behind"},
    // --- the driver ---
    {Id::kDriverCallTime, kDaemon, kHistogram, "fineserve_driver_call_seconds",
     "seconds", "call",
     "Time of calls of the driver: create, destroy, export, zero, poll, list"},
    {Id::kDriverCallErrors, kDaemon, kCounter,
     "fineserve_driver_call_errors_total", "calls", "call",
     "Calls of the driver that failed"},
    // --- admission; only with a fleet ---
    {Id::kProxies, kDaemon, kGauge, "fineserve_proxies", "proxies", "",
     "Proxies that greet this fineserved"},
    {Id::kMachinesRefused, kDaemon, kCounter,
     "fineserve_machines_refused_total", "connections", "reason",
     "Connections of other machines that were refused, or ended by bytes that "
     "were changed or repeated on their way (damaged)"},
    {Id::kQueuedRequests, kDaemon, kGauge, "fineserve_queued_requests",
     "requests", "model,kind",
     "Requests that wait: in time, or late and to be served when there is room "
     "(degraded)"},
    {Id::kQueuedTokens, kDaemon, kGauge, "fineserve_queued_tokens", "tokens",
     "model", "Prompt tokens of the requests that wait"},
    {Id::kDecisions, kDaemon, kCounter, "fineserve_decisions_total", "requests",
     "model,decision",
     "Requests that were admitted, admitted late (degraded), rejected, or "
     "cancelled before"},
    {Id::kRejections, kDaemon, kCounter, "fineserve_rejections_total",
     "requests", "model,reason",
     "Requests rejected: deadline, too_long, no_engine or queue_full"},
    {Id::kFirstTokens, kDaemon, kCounter, "fineserve_first_tokens_total",
     "requests", "model,slo",
     "First tokens that came on_time or late by the TTFT SLO; attainment is "
     "the part on time"},
    {Id::kTtftSlo, kDaemon, kGauge, "fineserve_slo_ttft_seconds", "seconds",
     "model", "The model's TTFT SLO"},
    {Id::kWantedReplicas, kDaemon, kGauge, "fineserve_model_wanted_replicas",
     "replicas", "model",
     "Replicas in the fleet file that the demand of the last minute wants, for "
     "an autoscaler; absent while that is not known"},
    {Id::kUnlistedReplicas, kDaemon, kGauge,
     "fineserve_model_unlisted_replicas", "replicas", "model",
     "Replicas that the demand wants beyond those in the fleet file"},
    {Id::kEngineServes, kDaemon, kGauge, "fineserve_engine_serves", "0 or 1",
     "engine,model",
     "Whether a proxy reports that the engine serves; absent without a proxy"},
    {Id::kEngineDrains, kDaemon, kGauge, "fineserve_engine_drains", "0 or 1",
     "engine,model",
     "Whether an operator keeps new requests from the engine: it is drained, "
     "or was stopped"},
    {Id::kEngineOnRequest, kDaemon, kGauge, "fineserve_engine_on_request",
     "0 or 1", "engine,model",
     "Whether fsctl up starts the engine when a request waits for it"},
    {Id::kEngineScaled, kDaemon, kGauge, "fineserve_engine_scaled", "0 or 1",
     "engine,model",
     "Whether an autoscaler starts and ends the engine: it may be away"},
    {Id::kEngineTroubles, kDaemon, kGauge, "fineserve_engine_troubles",
     "troubles", "engine,model",
     "What the fleet file says of the engine and is not so (fsctl models)"},
    {Id::kEngineRequests, kDaemon, kGauge, "fineserve_engine_requests",
     "requests", "engine,model", "Requests that the engine runs"},
    {Id::kEngineMostRequests, kDaemon, kGauge, "fineserve_engine_most_requests",
     "requests", "engine,model",
     "Requests that it could run now: N_max of algorithm 2"},
    {Id::kEngineKvTokens, kDaemon, kGauge, "fineserve_engine_kv_tokens",
     "tokens", "engine,model", "Tokens whose KV the engine can be sure of"},
    {Id::kEngineHeldTokens, kDaemon, kGauge, "fineserve_engine_held_tokens",
     "tokens", "engine,model", "Of these, promised to what it runs"},
    {Id::kEngineBacklogTokens, kDaemon, kGauge,
     "fineserve_engine_backlog_tokens", "tokens", "engine,model",
     "Prompt tokens that it was sent and has not filled"},
    {Id::kEngineKappa, kDaemon, kGauge, "fineserve_engine_kappa", "ratio",
     "engine,model",
     "Time that first tokens take by that predicted from the profile (κ)"},
    {Id::kEngineDroppedBytes, kDaemon, kGauge, "fineserve_engine_dropped_bytes",
     "bytes", "engine,model",
     "Weights that the engine has dropped, and reads from another GPU; 0: "
     "none"},
    {Id::kEngineDroppedTime, kDaemon, kGauge,
     "fineserve_engine_dropped_seconds", "seconds", "engine,model",
     "How long it has done so; 0: it has its own"},
    {Id::kPeerReadBytes, kDaemon, kCounter, "fineserve_peer_read_bytes_total",
     "bytes", "engine,model",
     "Bytes of weights that its steps have read from another GPU: each byte "
     "once a step, and at most rereads times as many"},
    // --- the plan; only with a planner ---
    {Id::kPlanNumber, kDaemon, kGauge, "fineserve_plan_number", "number", "",
     "Number of the plan that fineserved follows; 0: none yet"},
    {Id::kPlanLeads, kDaemon, kGauge, "fineserve_plan_leads", "0 or 1", "",
     "Whether this fineserved leads, and plans for all"},
    {Id::kPlanFrozen, kDaemon, kGauge, "fineserve_plan_frozen", "0 or 1", "",
     "Of the leader: whether the operator lets no model move"},
    {Id::kPlanMoving, kDaemon, kGauge, "fineserve_plan_moving", "0 or 1", "",
     "Of the leader: whether a move is under way"},
    {Id::kPlanMoves, kDaemon, kCounter, "fineserve_plan_moves_total", "moves",
     "", "Moves that this fineserved began as the leader"},
    {Id::kPlansRefused, kDaemon, kCounter, "fineserve_plan_refusals_total",
     "plans", "",
     "Plans that were refused: of an older term, or an older number"},
    {Id::kPlanTroubles, kDaemon, kGauge, "fineserve_plan_troubles", "troubles",
     "", "What keeps the leader from planning (fsctl plan)"},
    // --- fineserve-proxy ---
    {Id::kRequests, kProxy, kCounter, "fineserve_requests_total", "requests",
     "model,status", "Requests answered, by status; 499: the client went away"},
    {Id::kRetries, kProxy, kCounter, "fineserve_retries_total", "requests",
     "model", "Requests tried again after an engine failed them"},
    {Id::kEngineErrors, kProxy, kCounter, "fineserve_engine_errors_total",
     "requests", "engine,error",
     "Requests that an engine failed: connect, reset, timeout, a status of 500 "
     "or more, or a stream that begins with an error event"},
    {Id::kForwarded, kProxy, kCounter, "fineserve_forwarded_total", "requests",
     "model", "Requests sent to an engine without asking admission"},
    {Id::kUnscheduled, kProxy, kCounter, "fineserve_unscheduled_total",
     "requests", "model",
     "Requests admitted by the proxy itself because no fineserved answered"},
    {Id::kDaemonDecides, kProxy, kGauge, "fineserve_daemon_decides", "0 or 1",
     "gpu", "Whether the GPU's fineserved decides (1), or is away (0)"},
    {Id::kPromptTokens, kProxy, kCounter, "fineserve_prompt_tokens_total",
     "tokens", "model", "Prompt tokens, as engines counted them"},
    {Id::kGenerationTokens, kProxy, kCounter,
     "fineserve_generation_tokens_total", "tokens", "model",
     "Output tokens, as engines counted them, else events"},
    {Id::kSloViolations, kProxy, kCounter, "fineserve_slo_violation_total",
     "requests", "model,slo", "Streams that missed their SLO"},
    {Id::kPrompts, kProxy, kCounter, "fineserve_prompts_total", "requests",
     "model,tokens",
     "Prompts by how their tokens were known: exact, by estimate, or by "
     "estimate because no engine counted them (fallback)"},
    {Id::kQueueTime, kProxy, kHistogram, "fineserve_queue_time_seconds",
     "seconds", "model", "Time from a request to admission's answer"},
    {Id::kTimeToFirstToken, kProxy, kHistogram,
     "fineserve_time_to_first_token_seconds", "seconds", "model",
     "Time from a request to the first token of its stream"},
    {Id::kTimePerOutputToken, kProxy, kHistogram,
     "fineserve_time_per_output_token_seconds", "seconds", "model",
     "Mean time between the tokens of a stream"},
    {Id::kBytesPerToken, kProxy, kGauge, "fineserve_bytes_per_token",
     "bytes per token", "model",
     "Bytes per token by which prompts are estimated"},
    {Id::kConnections, kProxy, kGauge, "fineserve_connections", "connections",
     "", "Open connections of clients"},
    {Id::kConnectionsRefused, kProxy, kCounter,
     "fineserve_connections_refused_total", "connections", "",
     "Connections beyond the limit"},
    {Id::kRequestsRunning, kProxy, kGauge, "fineserve_requests_running",
     "requests", "", "Requests that engines are working on"},
    {Id::kAccessLogLines, kProxy, kCounter, "fineserve_access_log_lines_total",
     "lines", "outcome",
     "Lines of the access log: written; dropped because its queue was full; "
     "failed because its file could not grow"},
    {Id::kSpans, kProxy, kCounter, "fineserve_spans_total", "spans", "outcome",
     "Spans that the collector took (sent), or that were given up after all "
     "tries (failed)"},
    {Id::kTracesDropped, kProxy, kCounter, "fineserve_traces_dropped_total",
     "requests", "",
     "Requests whose spans were dropped because their queue was full"},
    {Id::kSpanPostsFailed, kProxy, kCounter,
     "fineserve_span_posts_failed_total", "posts", "",
     "Batches of spans that the collector did not take, each try"},
    {Id::kTlsHandshakesFailed, kProxy, kCounter,
     "fineserve_tls_handshakes_failed_total", "connections", "",
     "Clients that did not finish TLS's handshake"},
    {Id::kCertificateExpiry, kProxy, kGauge,
     "fineserve_certificate_expiry_timestamp_seconds", "seconds since 1970", "",
     "When the certificate that clients are shown expires; absent without TLS"},
    {Id::kKeyRequests, kProxy, kCounter, "fineserve_key_requests_total",
     "requests", "key", "Requests of a named key that have ended at engines"},
    {Id::kKeyTokens, kProxy, kCounter, "fineserve_key_tokens_total", "tokens",
     "key,kind",
     "Tokens charged to a named key for requests that have ended: prompt or "
     "output"},
    {Id::kKeyRefusals, kProxy, kCounter, "fineserve_key_refusals_total",
     "requests", "key,reason",
     "Requests of a named key that the proxy answered with an error"},
    {Id::kKeySpentToday, kProxy, kGauge, "fineserve_key_spent_today_tokens",
     "tokens", "key",
     "Tokens charged to a named key since midnight (UTC), by all proxies of "
     "the ledger"},
    {Id::kKeyDailyBudget, kProxy, kGauge, "fineserve_key_daily_budget_tokens",
     "tokens", "key", "Tokens that a named key may spend a day"},
    {Id::kFallbacks, kProxy, kCounter, "fineserve_fallbacks_total", "requests",
     "model,to",
     "Requests that went to a model's fallback because it could not serve "
     "them"},
};

constexpr bool IsInOrder() {
  if (std::size(kRows) != kMetrics) return false;
  for (size_t i = 0; i < kMetrics; ++i) {
    if (static_cast<size_t>(kRows[i].id) != i) return false;
  }
  return true;
}
static_assert(IsInOrder(), "each MetricId has its row, in the enum's order");

}  // namespace

const Metric& Describe(MetricId id) { return kRows[static_cast<size_t>(id)]; }

const std::vector<Metric>& AllMetrics() {
  static const auto* all =
      new std::vector<Metric>(std::begin(kRows), std::end(kRows));
  return *all;
}

const char* Name(Program program) {
  return program == Program::kDaemon ? "fineserved" : "fineserve-proxy";
}

const char* Name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";
}

std::vector<absl::string_view> LabelNames(const Metric& metric) {
  return absl::StrSplit(metric.labels, ',', absl::SkipEmpty());
}

}  // namespace fineserve::metrics
