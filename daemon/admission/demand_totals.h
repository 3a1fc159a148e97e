#ifndef DAEMON_ADMISSION_DEMAND_TOTALS_H_
#define DAEMON_ADMISSION_DEMAND_TOTALS_H_

#include <map>
#include <string>
#include <vector>

#include "daemon/wire/demand_counts.h"
#include "daemon/wire/message_types.h"

namespace fineserve::admission {

// Counts of the requests for each model and their outcomes, over all proxies,
// since this object began. A proxy sends counts since its own beginning; only
// their growth between two greetings counts. So the first counts of a proxy
// that was there before, of one that was restarted, and of one that sends
// nonsense add nothing. Confined to a thread.
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

  using ByModel = std::map<std::string, wire::DemandCounts>;

  // The models of which anything is known. No count ever falls.
  ByModel Known() const;
  void Tell(wire::ReportT* report) const;

 private:
  ByModel totals_;                       // has each model that counts
  std::map<std::string, ByModel> told_;  // last, by peer
};

}  // namespace fineserve::admission

#endif  // DAEMON_ADMISSION_DEMAND_TOTALS_H_
