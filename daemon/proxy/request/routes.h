#ifndef DAEMON_PROXY_REQUEST_ROUTES_H_
#define DAEMON_PROXY_REQUEST_ROUTES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/base/http/api_error.h"
#include "daemon/base/http/head.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/proxy/keys/client.h"

namespace fineserve::proxy {

// Which of the proxy's two ports a client is connected to.
enum class Port { kPublic, kAdmin };

enum class Route {
  kHealth,  // the proxy lives
  kReady,   // the proxy takes requests
  kVersion,
  kMetrics,    // admin port only, as the next five
  kRequests,   // what is under way and what ended lately
  kUsages,     // what each named key has spent
  kPage,       // what happens, to look at
  kFrames,     // the page's events
  kLog,        // the end of an engine's log
  kModels,     // the fleet's models, or one of them
  kUsage,      // what the client's key has spent
  kAdmitted,   // engines generate: admission decides
  kForwarded,  // engines only read, or what the fleet does not refuse
  kResponse,   // one stored response: its engine reads or cancels it
  kUnknown,
};

// Returns the route of a target. `target` is as in the start line; its query is
// ignored. `others`: paths that the proxy does not know and that go to an
// engine.
Route RouteOf(Port port, absl::string_view target,
              const config::OtherPaths& others = {});

// True if an engine answers it.
inline bool GoesToEngine(Route route) {
  return route == Route::kAdmitted || route == Route::kForwarded ||
         route == Route::kResponse;
}

// True if the route is only for the operator.
inline bool IsAdmins(Route route) {
  return route >= Route::kMetrics && route <= Route::kLog;
}

// Returns the ID in /v1/responses/ID, the target of a Route::kResponse.
absl::string_view ResponseIdOf(absl::string_view target);

// Returns the engine in /logs/ENGINE, the target of a Route::kLog, decoded.
std::string EngineOfLog(absl::string_view target);

// True if an engine's /tokenize reads the bodies of this target.
bool IsTokenizable(absl::string_view target);

// True if a target belongs to Anthropic's API, whose clients send their key as
// x-api-key (docs.anthropic.com, "API overview").
bool IsAnthropic(absl::string_view target);

// Returns the methods that a route takes, as the Allow field lists them; empty:
// any.
absl::string_view MethodsOf(Route route);

// Returns the error if a request is refused by its header alone: a wrong method
// or path, or a path for an engine that may not be what it looks like
// (IsPlainPath).
absl::optional<ApiError> RefuseByHead(Route route, absl::string_view method,
                                      absl::string_view target);

// The fleet and the keys as last read; a reload replaces the whole object.
class Routes {
 public:
  // `outside_keys`: API keys of models outside, by name.
  Routes(std::shared_ptr<const config::Fleet> fleet, KeySet keys,
         std::map<std::string, std::string> outside_keys = {})
      : fleet_(std::move(fleet)),
        keys_(std::move(keys)),
        outside_keys_(std::move(outside_keys)) {}

  const std::shared_ptr<const config::Fleet>& fleet() const { return fleet_; }
  const KeySet& keys() const { return keys_; }

  // Returns the API key of a model outside; empty if its endpoint needs none.
  std::string KeyOutside(const std::string& name) const {
    const auto found = outside_keys_.find(name);
    return found == outside_keys_.end() ? "" : found->second;
  }

  // Returns the client with the request's key; null if there is none. On
  // Anthropic's paths the key may be in either field: some clients send a token
  // of another service in one and our key in the other.
  std::shared_ptr<const Client> ClientOf(const RequestParser& request) const;

  // Find a model by its name or an alias, and an engine by its name. Null if
  // there is none.
  const config::FleetModel* Model(absl::string_view name) const;
  const config::FleetEngine* Engine(absl::string_view name) const;

  // Returns the model that the request names, also by an alias; if it names
  // none, the fleet's only model. Otherwise returns a 404 or 400 in OpenAI's
  // format.
  absl::variant<const config::FleetModel*, ApiError> ModelFor(
      const std::string& asked) const;

  // Round robin: returns the engine whose `turn` it is among the model's
  // engines with the highest fitness. Null if the model has no engine.
  using Fitness = std::function<int(const std::string& engine)>;
  const config::FleetEngine* EngineInTurn(absl::string_view model,
                                          uint64_t turn,
                                          const Fitness& fitness) const;

  // Returns the engines in the order in which to ask them for something that
  // one of them has: the one named `likeliest` if there is one, then those that
  // serve, then the rest.
  using Serves = std::function<bool(const std::string& engine)>;
  std::vector<const config::FleetEngine*> EnginesToAsk(
      absl::string_view likeliest, const Serves& serves) const;

  // Answers GET /v1/models and /v1/models/NAME, with the models that the client
  // may ask for.
  LocalAnswer Models(absl::string_view target, const Client& client) const;

 private:
  std::shared_ptr<const config::Fleet> fleet_;
  KeySet keys_;
  std::map<std::string, std::string> outside_keys_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_ROUTES_H_
