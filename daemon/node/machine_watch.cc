#include "daemon/node/machine_watch.h"

#include <algorithm>
#include <utility>

namespace fineserve::node {

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

}  // namespace fineserve::node
