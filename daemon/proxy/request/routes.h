#ifndef DAEMON_PROXY_REQUEST_ROUTES_H_
#define DAEMON_PROXY_REQUEST_ROUTES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/config/fleet.h"
#include "daemon/proxy/http/api_error.h"
#include "daemon/proxy/http/head.h"
#include "daemon/proxy/request/key_set.h"

namespace fineserve::proxy {

// Which of the proxy's two ports a client came by.
enum class Port { kPublic, kAdmin };

enum class Route {
  kHealth,  // lives
  kReady,   // takes requests
  kVersion,
  kMetrics,    // admin port only
  kModels,     // the fleet's list, or one of it
  kAdmitted,   // completions: admission decides
  kForwarded,  // everything else under /v1, /tokenize, /detokenize
  kUnknown,
};

// `target` as in the start line; its query does not count.
Route RouteOf(Port port, absl::string_view target);

// The methods that a route takes, as Allow names them; empty: any.
absl::string_view MethodsOf(Route route);

// A request that can be refused by its header alone: wrong method, wrong path.
absl::optional<ApiError> RefuseByHead(Route route, absl::string_view method,
                                      absl::string_view target);

// The fleet and the keys as last read; replaced as a whole.
class Routes {
 public:
  Routes(std::shared_ptr<const config::Fleet> fleet, KeySet keys)
      : fleet_(std::move(fleet)), keys_(std::move(keys)) {}

  const std::shared_ptr<const config::Fleet>& fleet() const { return fleet_; }
  const KeySet& keys() const { return keys_; }

  // Null if there is none.
  const config::FleetModel* Model(absl::string_view name) const;
  const config::FleetEngine* Engine(absl::string_view name) const;

  // The name to route by: the request's; if it names none and the fleet has
  // one model, that. A 404 or 400 in OpenAI's shape otherwise.
  absl::variant<const config::FleetModel*, ApiError> ModelFor(
      const std::string& asked) const;

  // The n-th of the model's engines, counted round, those that do not serve
  // left out unless none does; null if it has none.
  using Serves = std::function<bool(const std::string& engine)>;
  const config::FleetEngine* EngineInTurn(absl::string_view model,
                                          uint64_t turn,
                                          const Serves& serves) const;

  // GET /v1/models and /v1/models/NAME.
  LocalAnswer Models(absl::string_view target) const;

 private:
  std::shared_ptr<const config::Fleet> fleet_;
  KeySet keys_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_ROUTES_H_
