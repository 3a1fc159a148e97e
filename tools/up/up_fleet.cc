#include "tools/up/up_fleet.h"

#include <unistd.h>

#include "daemon/config/fleet_path.h"
#include "tools/up/fleet_check.h"

namespace fineserve::fsctl {
namespace {

uint64_t Nanoseconds(double seconds) {
  return static_cast<uint64_t>(seconds * 1e9);
}

}  // namespace

void UpFleet::DescribeTo(apply::Answer* answer) const {
  answer->process = "fsctl up";
  answer->pid = getpid();
  answer->fleet_path = config::FleetPath(fleet_path_);
  answer->fleet = engines_->written();
  answer->engines = engines_->States();
}

absl::StatusOr<config::FleetDescription> UpFleet::Read(
    std::vector<std::string>* notes) {
  absl::StatusOr<FleetToRun> found = ReadFleetOfUp(fleet_path_);
  if (!found.ok()) return found.status();
  absl::Status s = CompleteGpus(globals_, &found->fleet, notes);
  if (s.ok()) s = engines_->CheckAddresses(found->fleet);
  if (!s.ok()) return s;
  found_ = *std::move(found);
  return found_->written;
}

absl::Status UpFleet::TakeRead() {
  engines_->Take(*std::exchange(found_, absl::nullopt), Nanoseconds(drain_s_));
  drain_s_ = kUsualDrainS;
  return absl::OkStatus();
}

absl::Status UpFleet::Other(const apply::Question& question) {
  const uint64_t drain_ns = Nanoseconds(question.seconds);
  switch (question.kind) {
    case apply::Question::Kind::kRestart:
      return engines_->Restart(question.engines, drain_ns);
    case apply::Question::Kind::kStop:
      return engines_->StopEngines(question.engines, drain_ns);
    case apply::Question::Kind::kStart:
      return engines_->StartEngines(question.engines);
    default:
      return FleetHolder::Other(question);
  }
}

}  // namespace fineserve::fsctl
