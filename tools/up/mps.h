#ifndef TOOLS_UP_MPS_H_
#define TOOLS_UP_MPS_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "tools/fsctl/process/child.h"

namespace fineserve::fsctl {

// NVIDIA's Multi-Process Service on this machine's GPUs, for the life of this
// object: kernels of several engines run concurrently instead of taking turns.
// Its control daemon is a separate process; it survives a killed fsctl, and the
// next fsctl takes it over.
class Mps {
 public:
  // Starts `nvidia-cuda-mps-control` with its pipes and logs below `folder`.
  // NotFound if it is not installed; Internal, naming the logs, if it fails.
  static absl::StatusOr<Mps> Start(const std::string& folder);

  Mps(Mps&& other) noexcept : pipes_(std::exchange(other.pipes_, "")) {}
  Mps& operator=(Mps&&) = delete;
  // Stops it; engines that still run lose their GPU.
  ~Mps();

  // Variables that let an engine share all of the GPU's compute through it.
  Environment environment() const;

 private:
  explicit Mps(std::string pipes) : pipes_(std::move(pipes)) {}

  std::string pipes_;  // folder; empty: moved from
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_MPS_H_
