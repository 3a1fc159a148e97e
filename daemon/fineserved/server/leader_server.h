#ifndef DAEMON_FINESERVED_SERVER_LEADER_SERVER_H_
#define DAEMON_FINESERVED_SERVER_LEADER_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/metrics/snapshot.h"
#include "daemon/contract/wire/socket.h"
#include "daemon/fineserved/server/event_loop.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/machines/daemon_directory.h"
#include "daemon/fleet/machines/lead_grant.h"
#include "daemon/scheduling/lead/lead_contest.h"
#include "daemon/scheduling/lead/leader.h"
#include "daemon/scheduling/lead/plan_board.h"

namespace fineserve::server {

// Leads the fleet's daemons if no other process does: tries for the lock once a
// second, then connects Leader to the loop and to a socket for each daemon of
// the fleet, including this one. In a fleet of several machines it leads only
// while this machine's fineserve-node grants it (design note 0031). Confined to
// the loop's thread.
class LeaderServer final : public admission::LeaderSeat {
 public:
  // `who`: this daemon, whose fleet is `fleet`. `folder`: the runtime folder.
  // The pointers must outlive this object.
  LeaderServer(const config::Fleet& fleet, const lead::Contender& who,
               const std::string& folder, admission::PlanBoard* board,
               const Clock* clock, EventLoop* loop);
  LeaderServer(const LeaderServer&) = delete;
  LeaderServer& operator=(const LeaderServer&) = delete;
  ~LeaderServer() override;

  // Sets the same fleet as its file describes it now.
  void SetFleet(const config::Fleet& fleet);
  const std::string& fleet_path() const { return who_.fleet; }
  // For a scrape.
  metrics::PlanFigures Measure() const;

  // While this server leads, the board refers to it as its leader.
  void Describe(wire::PlanStateT* state) const override;
  // In a fleet of several machines, refuses an order that the node cannot carry
  // to etcd now, because the next leader would not know it.
  absl::Status Steer(const wire::SteerT& steer) override;

 private:
  struct Link {
    wire::ClientSocket socket;
    std::unique_ptr<EventSource> readable;
  };

  void Beat();
  // Returns the time until the next beat. If a plan has just changed, its next
  // step waits for messages that come within milliseconds.
  uint64_t BeatUs();
  // In a fleet of several machines: reads the node's present grant.
  void ReadGrant();
  bool MayLead() const;
  // True if the leader's plan may be sent.
  bool IsCarried() const;
  void StepDown(const std::string& why);
  // Returns the trouble that the node reports; empty if there is none.
  std::string NodeTrouble() const;
  // Steps down if another process has taken the lead.
  void HoldTheLead();
  void TakeTheLead();
  // Sends every daemon the plan; each answers with its report.
  void Tell();
  void Connect();
  void Receive(Link* link);
  void ReceiveAll();

  config::Fleet fleet_;
  const lead::Contender who_;
  const std::string folder_;
  admission::PlanBoard* const board_;
  const Clock* const clock_;
  EventLoop* const loop_;
  lead::LeadContest contest_;
  absl::optional<cluster::DaemonDirectory> directory_;
  absl::optional<cluster::LeadGrant> grant_;
  uint64_t term_ = 0;                     // of leader_; 0: there is one machine
  std::unique_ptr<lead::Leader> leader_;  // null: another daemon leads
  std::map<std::string, Link> links_;     // by gpu, as the fleet writes it
  std::set<std::string> warned_;  // GPUs whose daemon cannot be connected to
  uint64_t beaten_number_ = 0;    // of the plan, at the last beat
  uint64_t changed_ns_ = 0;       // when that was another one
  std::unique_ptr<EventAlarm> beat_;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_LEADER_SERVER_H_
