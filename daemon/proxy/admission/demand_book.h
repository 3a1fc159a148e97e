#ifndef DAEMON_PROXY_ADMISSION_DEMAND_BOOK_H_
#define DAEMON_PROXY_ADMISSION_DEMAND_BOOK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/demand_counts.h"
#include "daemon/contract/wire/message_types.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/proxy/admission/admission.h"

namespace fineserve::proxy {

// Counts of the requests for each model since the proxy began, and of their
// outcomes (wire::ModelDemand): only a proxy sees a request once, on however
// many GPUs it was tried.
//
// A request is late if its first token comes after its TTFT SLO, or never,
// because it was refused or because the engine of its last attempt failed
// before. It is neither late nor on time if its client left first, or if its
// answer shows no first token, as one that is not streamed.
//
// The calls for a request come in the order of Admission's; after Refused, Left
// or Finished only its counts are kept. Confined to the proxy's thread.
class DemandBook {
 public:
  // `clock` outlives it.
  explicit DemandBook(const Clock* clock) : clock_(clock) {}

  // Counts a request of this model. A request that avoids an engine is a second
  // attempt and is already counted. A request that is already open is only
  // being decided again; its SLO may now begin later.
  void Submitted(const AdmissionRequest& request,
                 const config::FleetModel& model);
  void Refused(uint64_t id);
  // The request's client went away before the verdict.
  void Left(uint64_t id) { open_.erase(id); }
  void FirstToken(uint64_t id);
  void Finished(uint64_t id, uint32_t output_tokens, Outcome outcome);

  // Adds to `hello` the counts of every model that was asked for.
  void Tell(wire::HelloT* hello) const;

  // Requests that have not ended.
  size_t open() const { return open_.size(); }

 private:
  struct Open {
    wire::DemandCounts* counts = nullptr;  // in `models_`
    uint64_t deadline_ns = 0;              // of its first token
    bool tried_before = false;
    bool had_first_token = false;
  };

  const Clock* const clock_;
  std::map<std::string, wire::DemandCounts> models_;
  std::unordered_map<uint64_t, Open> open_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_DEMAND_BOOK_H_
