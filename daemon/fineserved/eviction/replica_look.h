#ifndef DAEMON_FINESERVED_EVICTION_REPLICA_LOOK_H_
#define DAEMON_FINESERVED_EVICTION_REPLICA_LOOK_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fineserved/admission/admission_service.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::server {

// Looks for engines of all daemons of this machine, on a separate thread that
// the first call starts: otherwise two daemons that look at the same time would
// wait for each other, and a stopped daemon would block its observers. One
// thread calls.
class ReplicaLook {
 public:
  using Sights = std::vector<admission::AdmissionService::Sight>;
  // `see` is called on this object's thread.
  ReplicaLook(std::function<Sights()> see, const Clock* clock);
  ~ReplicaLook();
  ReplicaLook(const ReplicaLook&) = delete;
  ReplicaLook& operator=(const ReplicaLook&) = delete;

  // Returns the result of a look at most kFreshNs ago; nullopt while a look is
  // under way.
  absl::optional<Sights> Recent();
  static constexpr uint64_t kFreshNs = 500'000'000;

  // Readable when a look has ended, until Recent is called.
  int descriptor() const { return ready_.get(); }

 private:
  void Run();

  const std::function<Sights()> see_;
  const Clock* const clock_;
  const driver::Descriptor ready_;
  const driver::Descriptor wake_;
  std::mutex mutex_;
  Sights seen_;           // under mutex_, as the next two
  uint64_t seen_ns_ = 0;  // 0: never
  bool looks_ = false;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_EVICTION_REPLICA_LOOK_H_
