#include "daemon/proxy/relay/note.h"

#include "daemon/base/http/traceparent.h"

namespace fineserve::proxy {

void NoteRefusal(const ApiError& error, Life* life) {
  life->status = error.status;
  life->error = error.code;
  life->ending = Ending::kRefused;
}

std::string ParentForEngine(const Life& life) {
  if (life.trace_id.empty()) return "";
  const std::string& attempt = life.last_attempt().span_id;
  return TraceparentText(
      {life.trace_id, attempt.empty() ? life.span_id : attempt, life.sampled});
}

}  // namespace fineserve::proxy
