#ifndef DAEMON_NODE_NODE_H_
#define DAEMON_NODE_NODE_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/machines/daemon_directory.h"
#include "daemon/fleet/machines/fleet_view.h"
#include "daemon/node/etcd/etcd_client.h"
#include "daemon/node/local_daemons.h"
#include "daemon/node/membership.h"

namespace fineserve::node {

// A machine's place in a fleet of several (design note 0031): keeps its lease
// and its registration in etcd and runs for election. By files in the runtime
// folder it lets one of the machine's daemons lead (cluster::LeadGrant) and
// gives fsctl its knowledge of the fleet (cluster::FleetView). While it leads
// it carries the plan that the leading daemon writes, plan.json, to etcd.
// Confined to the context's thread.
//
//   /fineserve/FLEET/election          the leader's name, under its lease
//   /fineserve/FLEET/machines/NAME     MachineRecord, under its lease
//   /fineserve/FLEET/plan              lead::PlanText, of the newest plan
//
// Every write of the plan has the election's create_revision as a condition.
class Node {
 public:
  struct Setup {
    config::Fleet fleet;
    std::string fleet_path;
    config::Machine machine;
    std::string folder;  // the runtime folder
    std::string key;     // public; may be empty
  };
  Node(boost::asio::io_context* io, Setup setup, const Clock* clock);

  // Begins the work, which ends with Stop.
  void Start();
  // Gives back the lead and the lease if etcd answers soon, and ends the
  // context's work.
  void Stop();

 private:
  template <typename T = void>
  using Work = boost::asio::awaitable<T>;

  Work<> KeepLease();
  Work<> FollowFleet();
  Work<> TellDaemons();
  Work<> End();

  Work<> RenewOnce();
  Work<bool> LookOnce();
  void Take(const etcd::RangeAnswer& answer);
  Work<> StandOrResign();
  Work<> Register();
  Work<> CarryPlan();
  void WriteFiles();
  void WriteGrant(uint64_t term);
  std::string Trouble() const;
  void Note(const absl::Status& s);
  void NoteWrite(const absl::Status& s);
  void RememberCluster();
  std::string Key(const std::string& name) const;

  boost::asio::io_context& io_;
  const Setup setup_;
  const Clock* const clock_;
  etcd::EtcdClient etcd_;
  Membership membership_;
  uint64_t remembered_ = 0;  // the cluster that the file names; 0: none
  MachineWatch machines_;
  const cluster::DaemonDirectory directory_;
  LocalDaemons daemons_;
  const std::string instance_;
  std::string registered_;        // what etcd has of this machine
  int64_t registered_under_ = 0;  // the lease
  bool registered_seen_ = false;
  // The plan that etcd has.
  std::string plan_;
  uint64_t carried_ = 0;  // its number
  // The granted term.
  uint64_t granted_term_ = 0;
  std::string first_plan_;    // with which it began
  std::string carried_text_;  // of plan.json, that was carried
  uint64_t fenced_ = 0;       // plans that etcd refused
  uint64_t quorum_ns_ = 0;
  uint64_t view_ns_ = 0;
  std::string trouble_;        // of etcd's answers
  std::string write_trouble_;  // of what was to be written there
  std::string written_grant_;
  uint64_t registered_ns_ = 0;
  bool ending_ = false;
};

}  // namespace fineserve::node

#endif  // DAEMON_NODE_NODE_H_
