#include "daemon/node/membership.h"

#include <algorithm>
#include <utility>

namespace fineserve::node {
namespace {

// Renewals within a TTL, so that two may be lost.
constexpr uint64_t kRenewals = 4;

}  // namespace

MachineWatch::MachineWatch(std::vector<std::string> machines, uint64_t lost_ns,
                           uint64_t never_seen_ns, uint64_t ttl_ns,
                           const Clock* clock)
    : lost_ns_(lost_ns),
      never_seen_ns_(never_seen_ns),
      ttl_ns_(ttl_ns),
      clock_(clock),
      order_(std::move(machines)) {
  for (const std::string& machine : order_) {
    known_[machine].record.name = machine;
  }
}

void MachineWatch::Saw(const std::vector<cluster::MachineRecord>& registered,
                       const std::set<std::string>& ended) {
  std::set<std::string> here;
  for (const cluster::MachineRecord& record : registered) {
    const auto found = known_.find(record.name);
    if (found == known_.end()) continue;  // of another fleet file
    here.insert(record.name);
    found->second.record = record;
    found->second.was_seen = true;
    found->second.missing_since_ns.reset();
  }
  for (auto& [name, known] : known_) {
    if (here.count(name) != 0 || known.missing_since_ns) continue;
    const uint64_t now_ns = clock_->NowNs();
    const bool has_lapsed = known.was_seen && ended.count(name) == 0;
    known.missing_since_ns = now_ns;
    known.silent_ns = now_ns - (has_lapsed ? std::min(now_ns, ttl_ns_) : 0);
  }
}

bool MachineWatch::IsLost(const Known& known) const {
  if (!known.missing_since_ns) return false;
  return clock_->NowNs() - *known.missing_since_ns >=
         (known.was_seen ? lost_ns_ : never_seen_ns_);
}

std::set<std::string> MachineWatch::Lost() const {
  std::set<std::string> lost;
  for (const auto& [name, known] : known_) {
    if (IsLost(known)) lost.insert(name);
  }
  return lost;
}

std::vector<cluster::SeenMachine> MachineWatch::All() const {
  std::vector<cluster::SeenMachine> all;
  for (const std::string& name : order_) {
    const Known& known = known_.at(name);
    all.push_back({known.record, known.was_seen && !known.missing_since_ns,
                   IsLost(known),
                   known.missing_since_ns ? known.silent_ns : 0});
  }
  return all;
}

bool MachineWatch::HasDouble(const std::string& machine,
                             const std::string& instance) const {
  const auto found = known_.find(machine);
  return found != known_.end() && found->second.was_seen &&
         !found->second.missing_since_ns &&
         found->second.record.instance != instance;
}

void Membership::Renew(uint64_t ttl_ns, uint64_t asked_ns) {
  Answered();
  // etcd may grant a longer TTL than requested; the surplus is not used.
  const uint64_t ttl = std::min(ttl_ns, settings_.ttl_ns);
  if (ttl <= settings_.margin_ns) return;
  // Answers may arrive out of order.
  valid_until_ns_ =
      std::max(valid_until_ns_, asked_ns + ttl - settings_.margin_ns);
}

void Membership::Granted(int64_t lease, uint64_t ttl_ns, uint64_t asked_ns) {
  lease_ = lease;
  valid_until_ns_ = 0;
  own_term_ = 0;
  has_seen_ = false;
  asked_ns_ = asked_ns;
  Renew(ttl_ns, asked_ns);
}

void Membership::KeptAlive(int64_t lease, uint64_t ttl_ns, uint64_t asked_ns) {
  if (lease == lease_ && lease != 0) Renew(ttl_ns, asked_ns);
}

void Membership::Lapsed(int64_t lease) {
  Answered();
  if (lease != lease_) return;
  lease_ = 0;
  valid_until_ns_ = 0;
  own_term_ = 0;
}

bool Membership::WantsToRenew() const {
  return lease_ != 0 &&
         clock_->NowNs() - asked_ns_ >= settings_.ttl_ns / kRenewals;
}

void Membership::Saw(const absl::optional<Election>& election) {
  Answered();
  has_seen_ = true;
  election_ = election;
  const bool is_own = election && lease_ != 0 && election->lease == lease_;
  own_term_ = is_own ? election->term : 0;
}

bool Membership::WantsToStand() const {
  return willing_ && has_seen_ && !election_ && lease_ != 0 && IsLeaseSure();
}

uint64_t Membership::Term() const {
  const bool leads = willing_ && own_term_ != resigned_term_ && IsLeaseSure();
  return leads ? own_term_ : 0;
}

bool Membership::HasQuorum() const {
  return answered_ns_ && clock_->NowNs() - *answered_ns_ < settings_.ttl_ns;
}

}  // namespace fineserve::node
