#ifndef TOOLS_UP_UP_FLEET_H_
#define TOOLS_UP_UP_FLEET_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/apply/fleet_holder.h"
#include "tools/fsctl/terminal/globals.h"
#include "tools/up/fleet_supervisor.h"

namespace fineserve::fsctl {

// Reloads the fleet file of `fsctl up`.
class UpFleet final : public apply::FleetHolder {
 public:
  // The first and the last must outlive it.
  UpFleet(const Globals& globals, std::string fleet_path,
          FleetSupervisor* engines)
      : globals_(globals),
        fleet_path_(std::move(fleet_path)),
        engines_(engines) {}

 protected:
  void DescribeTo(apply::Answer* answer) const override;
  absl::StatusOr<config::FleetDescription> Read(
      std::vector<std::string>* notes) override;
  absl::Status TakeRead() override;
  void SetDrain(double seconds) override { drain_s_ = seconds; }
  absl::Status Other(const apply::Question& question) override;

 private:
  const Globals& globals_;
  const std::string fleet_path_;
  FleetSupervisor* const engines_;
  absl::optional<FleetToRun> found_;
  double drain_s_ = kUsualDrainS;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_UP_FLEET_H_
