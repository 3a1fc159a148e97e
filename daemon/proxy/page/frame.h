#ifndef DAEMON_PROXY_PAGE_FRAME_H_
#define DAEMON_PROXY_PAGE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/fleet/config/fleet.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/page/gpu_watch.h"
#include "daemon/proxy/page/traffic.h"
#include "daemon/proxy/record/recorder.h"

namespace fineserve::proxy {

// A frame is one JSON object on one line: all that the page shows at a moment.
//
//   {"gpus":[GPU…],"states":["free",…],
//    "models":[MODEL…],"plan":PLAN or null,"requests":[REQUEST…] or null,
//    "away":["GPU-…",…],"unscheduled":0,"draining":false,"logs":true,
//    "version":"0.1.0"}
//
// GpuPart makes the first two fields, ProxyPart the rest, in two threads.
// Nothing in a frame says how old it is, so that two moments between which
// nothing has happened have the same frame.

// Returns `"gpus":[…],"states":[…]`. A GPU's slabs are runs of equal state and
// engine, with three numbers each: state, engine and number of slabs. Bytes and
// counts are numbers; times are UNIX milliseconds; an epoch is text, because it
// needs 64 bits.
std::string GpuPart(const std::vector<GpuSight>& sights);

// The proxy's own data. The pointers must be valid during the call.
struct ProxySight {
  const config::Fleet* fleet = nullptr;
  const Admission* admission = nullptr;
  const Traffic* traffic = nullptr;
  const Recorder* recorder = nullptr;
  bool draining = false;
  uint64_t now_ns = 0;  // of the clock that the two have their times from
  int64_t zero_ms = 0;  // of that clock, as UNIX time
  bool logs = {};       // this proxy serves engines' logs
};

// Returns the other fields of a frame. The requests are the last ended ones
// that named a model, newest first, at most kMostShown; null if the recorder
// keeps none.
inline constexpr size_t kMostShown = 24;
std::string ProxyPart(const ProxySight& sight);

// The whole of it.
std::string Frame(const std::string& gpu_part, const std::string& proxy_part);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_PAGE_FRAME_H_
