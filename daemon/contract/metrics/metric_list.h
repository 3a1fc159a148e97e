#ifndef DAEMON_CONTRACT_METRICS_METRIC_LIST_H_
#define DAEMON_CONTRACT_METRICS_METRIC_LIST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace fineserve::metrics {

// Every metric that our programs export has a name here and a row in
// metric_list.cc. The programs take its name, help and labels from that row,
// and `fsctl metrics` prints it. So every exported metric is listed.
enum class MetricId : uint8_t {
  // fineserved: the process.
  kBuildInfo,
  kStartTime,
  kTakeovers,
  kLongestTurn,
  kScrapes,
  kScrapeTime,
  kMessagesDropped,
  kPeersRefused,
  // The pool.
  kPoolSlabs,
  kPoolBytes,
  kSlabBytes,
  kPoolWantedBytes,
  kLeasesGranted,
  kLeasesDenied,
  kHandOvers,
  kSlabsAskedBack,
  kSlabsReturned,
  kSlabsZeroed,
  kZeroedBytes,
  kSlabsAdded,
  kSlabsWithdrawn,
  kAskBackTime,
  kZeroingTime,
  kSlabsQuarantined,
  kQuarantineAge,
  kProcessListsUseless,
  kMemoryErrors,
  kFormerPoolProcesses,
  // Engines in the pool.
  kEngines,
  kEngineSlabs,
  kEngineBytes,
  kEngineWantedBytes,
  kEngineTargetBytes,
  kEngineFloorBytes,
  kEngineFloorUnmetBytes,
  kFloorsUnmet,
  kEngineEvictedBytes,
  kMoves,
  kStoreBytes,
  kStoreLimitBytes,
  kStoreUnsharedBytes,
  kStoredBytes,
  kFilledBytes,
  kEngineSwapTime,
  kEngineLongestSwap,
  kEngineStarts,
  kEnginesDied,
  // The driver.
  kDriverCallTime,
  kDriverCallErrors,
  // Admission.
  kProxies,
  kMachinesRefused,
  kQueuedRequests,
  kQueuedTokens,
  kDecisions,
  kRejections,
  kFirstTokens,
  kTtftSlo,
  kWantedReplicas,
  kUnlistedReplicas,
  kEngineServes,
  kEngineDrains,
  kEngineOnRequest,
  kEngineScaled,
  kEngineTroubles,
  kEngineRequests,
  kEngineMostRequests,
  kEngineKvTokens,
  kEngineHeldTokens,
  kEngineBacklogTokens,
  kEngineKappa,
  kEngineDroppedBytes,
  kEngineDroppedTime,
  kPeerReadBytes,
  // The plan.
  kPlanNumber,
  kPlanLeads,
  kPlanFrozen,
  kPlanMoving,
  kPlanMoves,
  kPlansRefused,
  kPlanTroubles,
  // fineserve-proxy.
  kRequests,
  kRetries,
  kEngineErrors,
  kForwarded,
  kUnscheduled,
  kDaemonDecides,
  kPromptTokens,
  kGenerationTokens,
  kSloViolations,
  kPrompts,
  kQueueTime,
  kTimeToFirstToken,
  kTimePerOutputToken,
  kBytesPerToken,
  kConnections,
  kConnectionsRefused,
  kRequestsRunning,
  kAccessLogLines,
  kSpans,
  kTracesDropped,
  kSpanPostsFailed,
  kTlsHandshakesFailed,
  kCertificateExpiry,
  kKeyRequests,
  kKeyTokens,
  kKeyRefusals,
  kKeySpentToday,
  kKeyDailyBudget,
  kFallbacks,
};
inline constexpr size_t kMetrics =
    static_cast<size_t>(MetricId::kFallbacks) + 1;

enum class Program : uint8_t { kDaemon, kProxy };
enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };

struct Metric {
  MetricId id;
  Program program;
  MetricType type;
  const char* name;
  const char* unit;
  const char* labels;  // separated by commas, in the order of their values
  const char* meaning;
};

const Metric& Describe(MetricId id);
// Returns all metrics, in the order of MetricId.
const std::vector<Metric>& AllMetrics();

const char* Name(Program program);
const char* Name(MetricType type);
std::vector<absl::string_view> LabelNames(const Metric& metric);

}  // namespace fineserve::metrics

#endif  // DAEMON_CONTRACT_METRICS_METRIC_LIST_H_
