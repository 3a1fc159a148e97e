#ifndef DAEMON_PROXY_RELAY_ENGINE_POOL_H_
#define DAEMON_PROXY_RELAY_ENGINE_POOL_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/http/socket_io.h"

namespace fineserve::proxy {

// Idle connections to engines, by "host:port". A connection on which bytes came
// unasked is closed, since they would be taken for the next request's answer.
// The engine may close one just as it is taken, so the caller must be ready to
// try again on a new one. Confined to the proxy's thread.
class EnginePool {
 public:
  // Returns the connection that was used last, since it is the likeliest to be
  // alive.
  absl::optional<tcp::socket> Take(const std::string& authority);

  // REQUIRES: no byte of an answer is unread.
  void Keep(const std::string& authority, tcp::socket socket, uint64_t now_ns);

  // Closes those that have been idle for kIdleNs.
  void CloseIdle(uint64_t now_ns);
  void CloseAll() { idle_.clear(); }

 private:
  // uvicorn, vLLM's server, closes idle connections after 5 s; these are closed
  // before that.
  static constexpr uint64_t kIdleNs = 4'000'000'000;
  // Per engine. More requests than this at once are rare, an engine's batch
  // holds a few hundred at most.
  static constexpr size_t kMostIdle = 512;

  struct Idle {
    tcp::socket socket;
    uint64_t since_ns;
  };

  std::unordered_map<std::string, std::vector<Idle>> idle_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_ENGINE_POOL_H_
