#ifndef DAEMON_PROXY_RELAY_ENGINE_POOL_H_
#define DAEMON_PROXY_RELAY_ENGINE_POOL_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/http/socket_io.h"

namespace fineserve::proxy {

// Idle connections to engines, by "host:port". A connection on which unexpected
// bytes came is closed, since they would be taken for the next request's
// answer. The engine may close a connection just as it is taken, so the caller
// must be ready to try again on a new one. Confined to the proxy's thread.
class EnginePool {
 public:
  // Returns the connection that was used last, since it is the likeliest to be
  // alive.
  absl::optional<tcp::socket> Take(const std::string& authority);

  // REQUIRES: every byte of the last answer has been read.
  void Keep(const std::string& authority, tcp::socket socket, uint64_t now_ns);

  // Closes the connections that have been idle for kIdleNs.
  void CloseIdle(uint64_t now_ns);
  void CloseAll() { idle_.clear(); }

 private:
  // uvicorn, vLLM's server, closes idle connections after 5 s; the pool closes
  // them before that.
  static constexpr uint64_t kIdleNs = 4'000'000'000;
  // Limit per engine. More requests than this at once are rare; an engine's
  // batch holds a few hundred at most.
  static constexpr size_t kMostIdle = 512;

  struct Idle {
    tcp::socket socket;
    uint64_t since_ns;
  };

  std::unordered_map<std::string, std::vector<Idle>> idle_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_ENGINE_POOL_H_
