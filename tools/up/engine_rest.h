#ifndef TOOLS_UP_ENGINE_REST_H_
#define TOOLS_UP_ENGINE_REST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/apply/message.h"

namespace fineserve::fsctl {

// Keeps new requests from engines that are about to end, and knows when they
// have answered those that they run: twice a second it tells all proxies of the
// fleet that these engines rest for a few seconds. So nothing needs to be
// undone if fsctl is killed in between. Confined to one thread.
class EngineRest {
 public:
  // Asks a proxy; nullopt if it does not answer in time.
  using AskProxy = std::function<absl::optional<apply::Answer>(
      const std::string& door, const apply::Question& question)>;
  // The proxies' doors.
  using ListProxies = std::function<std::vector<std::string>()>;

  EngineRest(std::string fleet_path, ListProxies list, AskProxy ask)
      : fleet_path_(std::move(fleet_path)),
        list_(std::move(list)),
        ask_(std::move(ask)) {}

  // Those of a runtime folder.
  static EngineRest OfFolder(std::string fleet_path, const std::string& folder);

  // To be called often, with all engines that are to rest now. Times are
  // CLOCK_MONOTONIC, ns.
  void Turn(uint64_t now_ns, const std::vector<std::string>& engines);

  // True if no proxy has a request there, nor will have one: a verdict of the
  // daemon may have been under way when the rest began.
  bool IsIdle(const std::string& engine, uint64_t now_ns) const;

 private:
  static constexpr uint64_t kPeriodNs = 500'000'000;
  static constexpr double kRestS = 3;
  static constexpr uint64_t kLeastRestNs = 1'500'000'000;

  struct Resting {
    uint64_t since_ns;
    bool is_idle = false;  // by the last answers
  };

  void Ask(const std::vector<std::string>& engines);

  std::string fleet_path_;
  ListProxies list_;
  AskProxy ask_;
  std::map<std::string, Resting> resting_;  // by engine
  uint64_t due_ns_ = 0;
  bool any_proxy_ = false;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_ENGINE_REST_H_
