#ifndef DAEMON_FINESERVED_START_DAEMON_FLEET_H_
#define DAEMON_FINESERVED_START_DAEMON_FLEET_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/fleet/config/config.h"
#include "daemon/fleet/door/fleet_holder.h"

namespace fineserve::server {

// Lets fineserved reload its configuration, including the fleet. Confined to
// the daemon's thread.
class DaemonFleet final : public apply::FleetHolder {
 public:
  using ReadConfig = std::function<absl::StatusOr<config::Config>()>;
  using TakeConfig = std::function<absl::Status(config::Config)>;

  // `config`, which the daemon currently uses, must outlive this object.
  DaemonFleet(std::string gpu, const config::Config* config, ReadConfig read,
              TakeConfig take)
      : gpu_(std::move(gpu)),
        config_(config),
        read_(std::move(read)),
        take_(std::move(take)) {}

 protected:
  void DescribeTo(apply::Answer* answer) const override;
  absl::StatusOr<config::FleetDescription> Read(
      std::vector<std::string>* notes) override;
  absl::Status TakeRead() override;

 private:
  const std::string gpu_;  // UUID
  const config::Config* const config_;
  const ReadConfig read_;
  const TakeConfig take_;
  absl::optional<config::Config> found_;
};

// Returns the changes in `now` that a running daemon does not take, one line
// each.
std::vector<std::string> NotTaken(const config::Config& before,
                                  const config::Config& now);

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_START_DAEMON_FLEET_H_
