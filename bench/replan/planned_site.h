#ifndef BENCH_REPLAN_PLANNED_SITE_H_
#define BENCH_REPLAN_PLANNED_SITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/replan/moves.h"
#include "bench/replan/zones.h"
#include "bench/soak/program.h"
#include "tests/process/child_process.h"
#include "tests/process/temporary_folder.h"

namespace fineserve::bench {

// How the models are placed at first.
struct Placing {
  std::vector<double> expected_rates;  // requests/s, by model
  bool on_one_gpu = false;             // no model may lie on the second
};

// The whole service as processes: two emulated GPUs with a fineserved each,
// fsctl up, which runs a tinyserve of each model where the plan wants it, and
// fineserve-proxy. All engines are alike, and an engine's weights are next to
// nothing, so KV alone decides who fits beside whom. All ends with this object.
// Confined to the thread that makes it.
class PlannedSite {
 public:
  static constexpr workload::Lengths kLengths = {200, 40};
  static constexpr double kSloTtft = 2;  // s

  static std::vector<std::string> Models() { return {"a", "b", "c"}; }
  // What requests of kLengths need of a GPU's pool.
  static KvNeed Need();

  PlannedSite();
  PlannedSite(const PlannedSite&) = delete;
  PlannedSite& operator=(const PlannedSite&) = delete;
  ~PlannedSite();

  // Starts everything, waits until each model answers, and freezes that plan.
  // False, after a message on standard error, if that fails.
  bool StartFrozen(const Placing& placing);
  // Lets models move from now on. False, after a message, if nobody leads.
  bool Thaw();

  uint16_t port() const { return port_; }
  uint64_t PlanNumber();
  Moves MovesSince(uint64_t plan_number);

 private:
  bool StartDaemons(const std::string& fleet);
  // Learns the UUIDs of the GPUs, which fleet files name.
  bool FindGpus();
  bool AwaitPlan();
  void WriteProfile(const std::string& model) const;
  void WriteFleet(const Placing& placing) const;
  std::string Fleet() const { return folder_.path() + "/fleet.toml"; }

  std::unique_ptr<Program> Launch(std::vector<std::string> words);
  // What fsctl prints; empty if it fails.
  std::string Fsctl(const std::vector<std::string>& arguments);

  const process::TemporaryFolder folder_;
  const process::TemporaryFolder device_folder_{"/dev/shm"};
  const process::Environment environment_;
  const uint16_t port_;  // of the proxy
  std::vector<std::string> gpus_;
  std::vector<std::unique_ptr<Program>> programs_;  // in the order started
  int launched_ = 0;
};

}  // namespace fineserve::bench

#endif  // BENCH_REPLAN_PLANNED_SITE_H_
