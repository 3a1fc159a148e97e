#ifndef DAEMON_PROXY_TRACE_TRACER_H_
#define DAEMON_PROXY_TRACE_TRACER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "daemon/base/http/random_hex.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/proxy/record/life.h"

namespace fineserve::proxy {

// Gives requests their places in traces, by W3C's Trace Context, and decides
// which are sampled. A client's own choice is respected. Of the traces that
// begin here, a part is sampled, by trace id, so that all who sample by it take
// the same traces. Confined to the proxy's thread.
class Tracer {
 public:
  // Turns tracing on, with a sampling `rate` in [0, 1]. Without this call, the
  // trace fields of requests go on to engines unchanged.
  void TurnOn(double rate);

  void Begin(const RequestParser& request, Life* life);
  std::string NewSpanId() { return random_.Next(8); }

  // True if a trace of this id that begins here is sampled.
  static bool Samples(double rate, absl::string_view trace_id);

 private:
  bool on_ = false;
  double rate_ = 0;
  RandomHex random_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_TRACE_TRACER_H_
