#ifndef DAEMON_PROXY_RELAY_METRICS_H_
#define DAEMON_PROXY_RELAY_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/record/access_log.h"
#include "daemon/proxy/trace/otlp_exporter.h"

namespace fineserve::proxy {

// The proxy's counts, rendered for Prometheus. `model` is a name of the fleet,
// or empty if the request ended before its model was known: clients cannot
// create labels. Confined to the proxy's thread.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Counts an answer that was sent; 499: the client went away first (nginx's
  // convention).
  void CountRequest(const std::string& model, unsigned status);
  void CountRetry(const std::string& model);
  // Counts a request that goes to `to` because `model` cannot serve it.
  void CountFallback(const std::string& model, const std::string& to);
  // Shows an engine's error counts from now on, so that the first error is an
  // increase.
  void AddEngine(const std::string& engine);
  // Counts a request that an engine of the fleet failed.
  void CountEngineError(const std::string& engine, EngineError error);
  // Counts a request that is sent to an engine without asking admission.
  void CountForwarded(const std::string& model);
  // Counts a request that is sent to an engine although no daemon decides.
  void CountUnscheduled(const std::string& model);
  void CountTokens(const std::string& model, uint32_t prompt, uint32_t output);
  // Count a request with a named key that has ended, or that was not served.
  // `reason` is an ApiError's code.
  void CountSpending(const std::string& key, uint32_t prompt, uint32_t output);
  void CountRefusal(const std::string& key, const std::string& reason);
  // Sets the tokens spent on this day, and the day's budget; 0: none.
  void SetBudget(const std::string& key, uint64_t budget, uint64_t spent);
  // Notes that admission's answer came `seconds` after the request.
  void QueueTime(const std::string& model, double seconds);
  void TimeToFirstToken(const std::string& model, double seconds);
  void TimePerOutputToken(const std::string& model, double seconds);
  enum class Slo { kTtft, kTpot };
  void CountSloViolation(const std::string& model, Slo slo);
  // The source of a prompt's token count: counted by an engine or given as ids;
  // estimated from its bytes; estimated because no engine counted them.
  enum class Counted { kExact, kEstimate, kFallback };
  void CountPrompt(const std::string& model, Counted how);
  void SetBytesPerToken(const std::string& model, double ratio);

  // Sets whether the daemon of each GPU decides; GPUs that are left out
  // disappear.
  void SetDaemons(const std::map<std::string, bool>& daemons);
  void SetConnections(size_t n);
  void CountConnectionRefused();
  // Sets the number of failed TLS handshakes since the start.
  void SetFailedHandshakes(uint64_t n);
  // UNIX time.
  void SetCertificateExpiry(double seconds);
  // Changes the number of requests between admission's verdict and their end.
  void AddRunning(int change);

  // Sets how many lines of the access log and how many spans were written or
  // lost since the start.
  void SetFollowed(const AccessLog::Counts& log,
                   const OtlpExporter::Counts& spans);

  std::string Render() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_METRICS_H_
