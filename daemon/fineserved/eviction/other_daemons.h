#ifndef DAEMON_FINESERVED_EVICTION_OTHER_DAEMONS_H_
#define DAEMON_FINESERVED_EVICTION_OTHER_DAEMONS_H_

#include <string>
#include <vector>

#include "daemon/fineserved/store/store.h"

namespace fineserve::server {

// Returns the offers of the stores of the same user's other daemons, whose
// sockets are in the same folder as this one's, and their GPUs' links. A daemon
// that does not answer within half a second is left out.
std::vector<store::OtherDaemon> AskOtherDaemons(const std::string& own_socket);

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_EVICTION_OTHER_DAEMONS_H_
