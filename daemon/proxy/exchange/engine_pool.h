#ifndef DAEMON_PROXY_EXCHANGE_ENGINE_POOL_H_
#define DAEMON_PROXY_EXCHANGE_ENGINE_POOL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "daemon/proxy/http/socket_io.h"

namespace fineserve::proxy {

// Connections to engines that wait for their next request, by "host:port". The
// engine may have closed one meanwhile: who takes it must be ready to try again
// on a new one. Confined to the proxy's thread.
class EnginePool {
 public:
  // The one that was used last, as the likeliest to live.
  absl::optional<tcp::socket> Take(const std::string& authority);

  // Nothing of an answer may be unread in it.
  void Keep(const std::string& authority, tcp::socket socket, uint64_t now_ns);

  // Closes those that have waited for longer than kIdleNs.
  void CloseIdle(uint64_t now_ns);
  void CloseAll() { idle_.clear(); }

 private:
  // uvicorn, vLLM's server, closes after 5 s; before it does, we do.
  static constexpr uint64_t kIdleNs = 4'000'000'000;
  // Per engine. More requests than this at once are rare, an engine's batch
  // holds a few hundred at most.
  static constexpr size_t kMostIdle = 512;

  struct Idle {
    tcp::socket socket;
    uint64_t since_ns;
  };

  absl::flat_hash_map<std::string, std::vector<Idle>> idle_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_EXCHANGE_ENGINE_POOL_H_
