#ifndef TESTS_INTEGRATION_MACHINES_MACHINES_SITE_H_
#define TESTS_INTEGRATION_MACHINES_MACHINES_SITE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "daemon/contract/wire/connection_watch.h"
#include "daemon/contract/wire/keys.h"
#include "daemon/contract/wire/message.h"
#include "daemon/fleet/machines/fleet_view.h"
#include "tests/integration/machines/network.h"
#include "tests/integration/serving/answer_load.h"
#include "tests/integration/site.h"
#include "tools/lab/process/etcd_member.h"

namespace fineserve::integration {

inline constexpr int kMachines = 3;
inline constexpr uint16_t kDaemonPort = 7480;  // of a machine's first GPU

// Three machines, each with a separate network, a member of etcd, an emulated
// GPU, fineserved, fineserve-node, fineserve-proxy and fsctl up; and three
// models, each of which may run on every machine. All are real processes. As
// long as the fixture lives, a thread checks that at no moment two machines may
// lead.
class MachinesSite : public Site {
 protected:
  ~MachinesSite() override;
  void SetUp() override;

  // Starts everything, and waits until the fleet agrees and every model answers
  // on every machine.
  void StartAll();
  void StartEtcd(int machine);
  // Starts a separate etcd cluster of one member instead of the machine's
  // member.
  void StartStrangeEtcd(int machine);
  static std::vector<process::EtcdAddress> Members();
  void StartNode(int machine);
  // Kills the machine's daemon, node and proxy, and starts them again.
  void RestartOurs(int machine);
  const std::string& fleet_path() const { return fleet_path_; }
  // Ports of all places of all models.
  std::set<int> EnginePorts() const;

  // Returns the view of that machine's fineserve-node.
  std::optional<cluster::FleetView> View(int machine) const;
  // Returns the machine that leads according to the newest view; -1 if none
  // does.
  int Leader() const;
  uint64_t Term() const;
  // True if the machines `among` have one plan of one term, see each other
  // alive, and include a leader.
  bool Agree(const std::vector<int>& among) const;
  // True if each model answers correctly through the proxy of that machine.
  bool AnswersAt(int machine);
  // Waits until the condition holds. Prints how long it took.
  bool Becomes(const std::string& what, const std::function<bool()>& condition);

  // Runs clients of each machine's proxy until EndLoads, which replay the
  // requests of a real trace to three models. Every answer is compared.
  void BeginLoads(const std::vector<int>& machines);
  // Prints what clients saw.
  void EndLoads(const std::string& what);
  int Count(Ending ending) const;

  // Prints fsctl's output on that machine for a viewer ($FINESERVE_SHOW, which
  // scripts/demo sets).
  void Show(int machine, const std::vector<std::string>& arguments);
  Finished FsctlOn(int machine, const std::vector<std::string>& arguments);
  // Sends that machine's daemon a plan without places, as a leader would.
  // Returns why the daemon refused it; empty if it did not.
  std::string TellPlan(int machine, uint64_t term, uint64_t number);
  // Returns the report of that machine's daemon about itself.
  wire::ReportT ReportOf(int machine) const;
  wire::KeyFolder KeysOf(int machine) const {
    return wire::KeyFolder(FolderOf(machine) + "/keys");
  }
  // Stops or continues every process that plans on that machine.
  void SignalPlanners(int machine, int signal);

  struct OneMachine {
    std::string gpu;  // UUID
    std::unique_ptr<Process> etcd, daemon, node, proxy, up;
  };
  OneMachine machines_[kMachines];
  std::unique_ptr<Network> network_;

 private:
  std::optional<cluster::FleetView> NewestView() const;
  std::string FolderOf(int machine) const;
  Process::Environment EnvironmentOf(int machine) const;
  std::unique_ptr<Process> StartOn(int machine,
                                   const std::vector<std::string>& command);
  std::unique_ptr<Process> StartDaemonOn(
      int machine, const std::vector<std::string>& arguments);
  void StartProxyOn(int machine);
  // Returns the first answer of that machine's daemon.
  std::string AskDaemonOn(int machine, wire::PlanNoticeT notice) const;
  void ExchangeKeys();
  void WriteFiles();
  // Returns the terms under which a machine may lead now.
  std::set<uint64_t> Grants() const;
  void WatchLeaders();

  const std::string fleet_path_ = folder() + "/fleet.toml";
  const process::TemporaryFolder devices_{"/dev/shm"};
  const TinyModel models_[kMachines] = {TinyModel("a"), TinyModel("b"),
                                        TinyModel("c")};
  uint16_t ports_[kMachines] = {};  // of each model's first engine
  std::vector<std::unique_ptr<AnswerLoad>> loads_;
  std::atomic<bool> ending_{false};
  std::thread watch_;
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_MACHINES_MACHINES_SITE_H_
