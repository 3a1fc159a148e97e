#include "daemon/proxy/choice/model_on_gpu.h"

namespace fineserve::proxy {

void ModelOnGpu::Add(bool lets_in, bool serves, double target_rate) {
  any_ = true;
  any_serves_ |= serves;
  lets_in_ |= lets_in;
  let_in_serves_ |= lets_in && serves;
  target_rate_ += target_rate;
}

int ModelOnGpu::Trouble(bool has_daemon, bool is_away) const {
  const bool answers = lets_in_ ? let_in_serves_ : any_serves_;
  return (lets_in_ ? 0 : kNotLetIn) + (answers ? 0 : kNoAnswer) +
         (has_daemon ? 0 : kNoDaemon) + (is_away ? kAway : 0);
}

}  // namespace fineserve::proxy
