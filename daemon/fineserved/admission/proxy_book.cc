#include "daemon/fineserved/admission/proxy_book.h"

#include <algorithm>

#include "daemon/contract/wire/message.h"

namespace fineserve::admission {

using sched::RequestId;

namespace {

// Returns the time `seconds` before `now_ns` (CLOCK_MONOTONIC).
uint64_t Before(uint64_t now_ns, double seconds) {
  return now_ns - std::min(now_ns, static_cast<uint64_t>(seconds * 1e9));
}

}  // namespace

ProxyBook::Proxy* ProxyBook::Find(const std::string& peer) {
  const auto known = proxies_.find(peer);
  return known == proxies_.end() ? nullptr : &known->second;
}

const ProxyBook::Origin* ProxyBook::FindOrigin(RequestId id) const {
  const auto origin = origins_.find(id);
  return origin == origins_.end() ? nullptr : &origin->second;
}

bool ProxyBook::AllHaveTold() const {
  return std::all_of(proxies_.begin(), proxies_.end(),
                     [](const auto& entry) { return entry.second.has_told; });
}

uint64_t ProxyBook::OldestPlan() const {
  uint64_t oldest = UINT64_MAX;
  for (const auto& [peer, proxy] : proxies_) {
    oldest = std::min(oldest, proxy.plan_number);
  }
  return oldest;
}

ProxyBook::Proxy* ProxyBook::Greet(const std::string& peer,
                                   const wire::HelloT& hello, uint64_t now_ns) {
  Proxy& from = proxies_[peer];
  from.heard_ns = now_ns;
  from.serves.clear();
  from.stopped.clear();
  from.silent_ns.clear();
  const auto before = std::exchange(from.troubles, {});
  for (const auto& engine : hello.engines) {
    from.serves[engine->name] = engine->serves;
    if (engine->stopped) from.stopped.insert(engine->name);
    if (engine->silent_s >= 0) {
      from.silent_ns[engine->name] = Before(now_ns, engine->silent_s);
    }
    if (engine->trouble.empty()) continue;
    const auto known = before.find(engine->name);
    const bool is_known =
        known != before.end() && known->second.what == engine->trouble;
    const uint64_t since_ns = engine->trouble_s >= 0
                                  ? Before(now_ns, engine->trouble_s)
                              : is_known ? known->second.since_ns
                                         : now_ns;
    from.troubles[engine->name] = {engine->trouble, since_ns};
  }
  from.unscheduled = hello.unscheduled;
  from.plan_number = hello.plan_number;
  return &from;
}

void ProxyBook::Drop(const std::string& peer) {
  const auto known = proxies_.find(peer);
  if (known == proxies_.end()) return;
  ForgetAll(&known->second);
  proxies_.erase(known);
}

absl::optional<RequestId> ProxyBook::Enter(Proxy* from, Origin origin) {
  const RequestId id{last_request_ + 1};
  if (!from->requests.try_emplace(origin.request, id).second) {
    return absl::nullopt;
  }
  ++last_request_;
  origins_[id] = std::move(origin);
  return id;
}

void ProxyBook::Forget(RequestId id) {
  const auto origin = origins_.find(id);
  if (origin == origins_.end()) return;
  Proxy* proxy = Find(origin->second.peer);
  if (proxy != nullptr) proxy->requests.erase(origin->second.request);
  origins_.erase(origin);
}

std::vector<RequestId> ProxyBook::ForgetAll(Proxy* from) {
  std::vector<RequestId> forgotten;
  for (const auto& [request, id] : from->requests) {
    forgotten.push_back(id);
    origins_.erase(id);
  }
  from->requests.clear();
  return forgotten;
}

bool ProxyBook::Serves(const std::string& engine) const {
  return std::any_of(proxies_.begin(), proxies_.end(), [&](const auto& entry) {
    const auto serves = entry.second.serves.find(engine);
    return serves != entry.second.serves.end() && serves->second;
  });
}

bool ProxyBook::IsStopped(const std::string& engine) const {
  return std::any_of(proxies_.begin(), proxies_.end(), [&](const auto& entry) {
    return entry.second.stopped.count(engine) != 0;
  });
}

uint64_t ProxyBook::SilentSince(const std::string& engine) const {
  uint64_t lost_ns = 0;
  for (const auto& [peer, proxy] : proxies_) {
    const auto silent = proxy.silent_ns.find(engine);
    if (silent == proxy.silent_ns.end()) continue;
    lost_ns = std::max(lost_ns, silent->second);
  }
  return lost_ns;
}

std::map<std::string, uint64_t> ProxyBook::TroublesOf(
    const std::string& engine) const {
  std::map<std::string, uint64_t> troubles;
  for (const auto& [peer, proxy] : proxies_) {
    const auto reported = proxy.troubles.find(engine);
    if (reported == proxy.troubles.end()) continue;
    const uint64_t since_ns = reported->second.since_ns;
    const auto [at, is_new] = troubles.emplace(reported->second.what, since_ns);
    if (!is_new) at->second = std::min(at->second, since_ns);
  }
  return troubles;
}

}  // namespace fineserve::admission
