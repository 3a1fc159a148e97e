#include "daemon/proxy/relay/engine_pool.h"

#include <algorithm>
#include <utility>

namespace fineserve::proxy {

absl::optional<tcp::socket> EnginePool::Take(const std::string& authority) {
  const auto it = idle_.find(authority);
  while (it != idle_.end() && !it->second.empty()) {
    tcp::socket socket = std::move(it->second.back().socket);
    it->second.pop_back();
    if (!IsReadable(&socket)) return socket;
  }
  return absl::nullopt;
}

void EnginePool::Keep(const std::string& authority, tcp::socket socket,
                      uint64_t now_ns) {
  std::vector<Idle>& idle = idle_[authority];
  if (idle.size() < kMostIdle) idle.push_back({std::move(socket), now_ns});
}

void EnginePool::CloseIdle(uint64_t now_ns) {
  for (auto& [authority, idle] : idle_) {
    // The oldest are at the front, since sockets are taken from and put back at
    // the end.
    const auto young = std::find_if(
        idle.begin(), idle.end(),
        [&](const Idle& one) { return one.since_ns + kIdleNs > now_ns; });
    idle.erase(idle.begin(), young);
  }
}

}  // namespace fineserve::proxy
