#ifndef DAEMON_PROXY_RECORD_LIFE_JSON_H_
#define DAEMON_PROXY_RECORD_LIFE_JSON_H_

#include <cstdint>
#include <string>

#include "daemon/proxy/record/life.h"

namespace fineserve::proxy {

// One object on one line, without its end: the access log's line. Unknown
// values are null. fineserve-proxy(8) lists the fields. `now_ns` ends what has
// not ended.
std::string LifeLine(const Life& life, uint64_t now_ns);

// The same with "steps": what happened when, in milliseconds since the request
// arrived, in order.
std::string LifeWithSteps(const Life& life, uint64_t now_ns);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RECORD_LIFE_JSON_H_
