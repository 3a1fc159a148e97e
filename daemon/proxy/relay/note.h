#ifndef DAEMON_PROXY_RELAY_NOTE_H_
#define DAEMON_PROXY_RELAY_NOTE_H_

#include <string>

#include "daemon/base/http/api_error.h"
#include "daemon/proxy/record/life.h"

namespace fineserve::proxy {

// Notes that the proxy answers with this error.
void NoteRefusal(const ApiError& error, Life* life);

// Returns the traceparent that an engine is sent now; empty if the request
// belongs to no trace of ours.
std::string ParentForEngine(const Life& life);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_NOTE_H_
