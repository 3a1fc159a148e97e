#ifndef DAEMON_PROXY_TRACE_OTLP_EXPORTER_H_
#define DAEMON_PROXY_TRACE_OTLP_EXPORTER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/base/http/random_hex.h"
#include "daemon/proxy/record/bounded_queue.h"
#include "daemon/proxy/record/life.h"

namespace fineserve::proxy {

// The body of a POST to /v1/traces (opentelemetry.io/docs/specs/otlp, "JSON
// Protobuf Encoding") and how many spans it has. A request gives these:
//
//   METHOD PATH          of the client's span, or the first of the trace
//     deciding           from the question to admission to its verdict
//       waiting          the part that the daemon's queue took, if any
//     relaying           one engine's part; what the engine does is below
struct OtlpBatch {
  std::string body;
  size_t spans = 0;
};
OtlpBatch OtlpJson(const std::vector<std::shared_ptr<const Life>>& lives,
                   RandomHex* random);

// Address to which spans are sent.
struct OtlpEndpoint {
  std::string host;
  uint16_t port = 0;
  std::string target;  // with a leading slash
};

// Reads "http://HOST[:PORT][/PATH]". The defaults are port 4318 and /v1/traces.
absl::StatusOr<OtlpEndpoint> ParseOtlpEndpoint(const std::string& url);

// Sends the spans of sampled requests to a collector, in batches, on a separate
// thread. An unreachable or slow collector costs only spans, which are counted,
// and never delays requests: spans that do not fit into the queue are dropped,
// each POST has a time-out, and after three tries its spans are dropped.
class OtlpExporter {
 public:
  static constexpr size_t kMostQueued = 8192;  // requests
  static constexpr size_t kBatch = 512;
  static constexpr int kTries = 3;

  struct Patience {
    std::chrono::milliseconds gather{1000};  // for a batch
    std::chrono::milliseconds post{5000};
    std::chrono::milliseconds retry{1000};  // then twice that
  };

  explicit OtlpExporter(OtlpEndpoint to)
      : OtlpExporter(std::move(to), Patience(), kMostQueued) {}
  OtlpExporter(OtlpEndpoint to, Patience patience, size_t most_queued);
  // Sends the spans that are still queued, trying each batch once.
  ~OtlpExporter();
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  // Any thread; does not wait.
  void Send(std::shared_ptr<const Life> life) { queue_.Push(std::move(life)); }

  struct Counts {
    uint64_t spans = 0;             // that the collector took
    uint64_t spans_given_up = 0;    // after all tries
    uint64_t requests_dropped = 0;  // the queue was full
    uint64_t failures = 0;          // POSTs that failed
  };
  Counts counts() const;

 private:
  void Run();
  void SendBatch(const std::vector<std::shared_ptr<const Life>>& batch);
  // Returns true if the collector took the batch; else sets *again if it may
  // take it the next time.
  bool Post(const std::string& body, bool* again);
  void Warn(const std::string& why);

  const OtlpEndpoint to_;
  const Patience patience_;
  BoundedQueue<std::shared_ptr<const Life>> queue_;
  std::atomic<uint64_t> spans_{0};
  std::atomic<uint64_t> spans_given_up_{0};
  std::atomic<uint64_t> failures_{0};
  // From here on, confined to the exporter's thread.
  RandomHex random_;
  uint64_t warned_ns_ = 0;
  std::thread thread_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_TRACE_OTLP_EXPORTER_H_
