#ifndef TOOLS_FSCTL_LAUNCH_MPS_H_
#define TOOLS_FSCTL_LAUNCH_MPS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fineserve::fsctl {

// NVIDIA's Multi-Process Service of this machine's GPUs, for as long as this
// object lives: kernels of several engines run at once instead of in turns.
// Its control daemon is a process of its own; a killed fsctl leaves it, and the
// next one takes it over.
class Mps {
 public:
  // Starts `nvidia-cuda-mps-control` with its pipes and logs below `folder`.
  // NotFound if it is not installed; Internal with what it said if it fails.
  static absl::StatusOr<Mps> Start(const std::string& folder);

  Mps(Mps&& other) noexcept : pipes_(std::exchange(other.pipes_, "")) {}
  Mps& operator=(Mps&&) = delete;
  // Ends it; engines that still run lose their GPU.
  ~Mps();

  // What an engine needs to use it: all of the GPU's compute, shared.
  std::vector<std::pair<std::string, std::string>> environment() const;

 private:
  explicit Mps(std::string pipes) : pipes_(std::move(pipes)) {}

  std::string pipes_;  // folder; empty: moved from
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LAUNCH_MPS_H_
