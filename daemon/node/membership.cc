#include "daemon/node/membership.h"

#include <algorithm>

namespace fineserve::node {
namespace {

// Renewals within a TTL: two may be lost.
constexpr uint64_t kRenewals = 4;

}  // namespace

void Membership::Renew(uint64_t ttl_ns, uint64_t asked_ns) {
  Answered();
  // etcd may grant more than was asked for; that is not needed.
  const uint64_t ttl = std::min(ttl_ns, settings_.ttl_ns);
  if (ttl <= settings_.margin_ns) return;
  // Answers may overtake each other.
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
