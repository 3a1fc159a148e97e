#ifndef BENCH_SLO_SERVING_SITE_H_
#define BENCH_SLO_SERVING_SITE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/micro/gpu_site.h"
#include "tests/process/child_process.h"
#include "tests/process/temporary_folder.h"

namespace fineserve::bench {

// The whole service as processes: fineserved on an emulated GPU with one pool,
// two tinyserve engines of different formats under the preload ("fp16": one
// plane of 64 KiB pages, "fp8": four of 8 KiB), fineserve-proxy. They end with
// this object. A failure ends the bench. Not thread-safe.
class ServingSite {
 public:
  // The duration of an engine's step in µs, which the scheduler knows, too.
  static constexpr double kBaseUs = 20'000;
  static constexpr double kTokenUs = 300;
  static constexpr double kSequenceUs = 60;
  static constexpr uint32_t kChunkTokens = 512;
  static constexpr uint32_t kLongestTokens = 6000;  // prompt and answer

  explicit ServingSite(const std::string& policy);
  ServingSite(const ServingSite&) = delete;
  ServingSite& operator=(const ServingSite&) = delete;
  ~ServingSite();

  static std::vector<std::string> Models() { return {"fp16", "fp8"}; }
  uint16_t port() const { return proxy_port_; }

 private:
  void WriteFleet(const std::string& policy) const;
  void StartEngine(const std::string& model, uint16_t port,
                   const std::vector<std::string>& format);
  std::string Fleet() const { return folder_.path() + "/fleet.toml"; }

  const process::TemporaryFolder folder_;
  const uint16_t fp16_port_, fp8_port_, proxy_port_;
  GpuSite gpu_;
  std::vector<process::ChildProcess> processes_;  // in the order started
};

}  // namespace fineserve::bench

#endif  // BENCH_SLO_SERVING_SITE_H_
