#ifndef DAEMON_FINESERVED_SERVER_OTHER_STORES_H_
#define DAEMON_FINESERVED_SERVER_OTHER_STORES_H_

#include <string>
#include <vector>

#include "daemon/fineserved/store/store.h"

namespace fineserve::server {

// Returns what the stores of the other daemons offer that listen in the folder
// of this one's socket, as the same user. One that does not answer in half a
// second is left out.
std::vector<store::Offer> AskOtherStores(const std::string& own_socket);

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_OTHER_STORES_H_
