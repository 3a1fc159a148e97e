#ifndef DAEMON_ADMISSION_DEMAND_TOTALS_H_
#define DAEMON_ADMISSION_DEMAND_TOTALS_H_

#include <map>
#include <string>
#include <vector>

#include "daemon/wire/demand_counts.h"
#include "daemon/wire/message_types.h"

namespace fineserve::admission {

// What clients ask of each model and what becomes of it, over all proxies,
// since this object began. A proxy tells counts since its own beginning; what
// counts is by how much they grew between two greetings. So a proxy that was
// there before, one that was restarted, and one that tells nonsense add nothing
// by what they say first. Confined to a thread.
class DemandTotals {
 public:
  // Other models are ignored.
  explicit DemandTotals(const std::vector<std::string>& models);

  // A peer's greeting. Its first one, and one whose counts of a model are less
  // than before, only says where that peer's counts of it begin.
  void Told(const std::string& peer, const wire::HelloT& hello);
  // The peer's next greeting is its first one.
  void Forget(const std::string& peer) { told_.erase(peer); }

  // Adds what `before` has counted of the models that count here.
  void CountOnFrom(const DemandTotals& before);

  // Adds each model of which anything is known. No count ever falls.
  void Tell(wire::ReportT* report) const;

 private:
  using ByModel = std::map<std::string, wire::DemandCounts>;

  ByModel totals_;                       // has each model that counts
  std::map<std::string, ByModel> told_;  // last, by peer
};

}  // namespace fineserve::admission

#endif  // DAEMON_ADMISSION_DEMAND_TOTALS_H_
