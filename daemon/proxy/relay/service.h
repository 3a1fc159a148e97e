#ifndef DAEMON_PROXY_RELAY_SERVICE_H_
#define DAEMON_PROXY_RELAY_SERVICE_H_

#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "daemon/base/clock/clock.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/keys/accounts.h"
#include "daemon/proxy/page/engine_log.h"
#include "daemon/proxy/page/feed.h"
#include "daemon/proxy/page/traffic.h"
#include "daemon/proxy/record/recorder.h"
#include "daemon/proxy/relay/engine_pool.h"
#include "daemon/proxy/relay/limits.h"
#include "daemon/proxy/relay/metrics.h"
#include "daemon/proxy/relay/response_homes.h"
#include "daemon/proxy/request/request_id.h"
#include "daemon/proxy/request/routes.h"
#include "daemon/proxy/request/token_estimator.h"
#include "daemon/proxy/tls/tls_back.h"
#include "daemon/proxy/trace/otlp_exporter.h"
#include "daemon/proxy/trace/tracer.h"

namespace fineserve::proxy {

class Connection;

// State that all connections of a proxy share. Confined to the proxy's thread;
// outlives the connections.
struct Service {
  const Clock* clock;
  Limits limits;
  BodyBudget bodies{0};
  // Threads that read large bodies.
  boost::asio::thread_pool* readers = nullptr;
  // A thread that reads the ends of logs and waits for fsctl up.
  boost::asio::thread_pool* log_reader = nullptr;
  LogPlace logs;
  std::shared_ptr<const Routes> routes;
  Admission* admission;
  TokenEstimator estimator;
  Metrics metrics;
  Accounts accounts;
  TlsBack tls;  // towards endpoints outside the fleet
  RequestIds request_ids;
  std::string via;  // the proxy's name in Via, of its own
  EnginePool engines;
  ResponseHomes homes;
  Traffic traffic;
  std::unique_ptr<Feed> feed;  // of the page
  Recorder recorder;
  Tracer tracer;
  const OtlpExporter* exporter = nullptr;  // for its counts
  bool draining = false;
  uint64_t last_request = 0;  // the newest one's id for admission
  uint64_t turn = 0;          // of requests forwarded without admission
  // Models for which it was logged that a prompt was not counted.
  std::unordered_set<std::string> uncounted;
  std::unordered_set<Connection*> connections;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_SERVICE_H_
