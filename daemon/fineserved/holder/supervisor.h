#ifndef DAEMON_FINESERVED_HOLDER_SUPERVISOR_H_
#define DAEMON_FINESERVED_HOLDER_SUPERVISOR_H_

#include <string>
#include <vector>

namespace fineserve::holder {

// Runs `program` with these arguments (without its name) as a child, keeps what
// it stores (DescriptorStore), and starts it again whenever it ends: at once,
// then with pauses that double up to 5 s while it keeps failing. Each start
// runs the file that is at that path then, which may be another version. Does
// nothing else: it makes no CUDA call, so nothing of the driver can take it
// down.
//
// SIGTERM and SIGINT stop the child by SIGINT, which tells it that no other
// child follows; then this returns, and the kept descriptors are closed. SIGHUP
// goes to the child. SIGUSR2 stops the child by SIGTERM, and it is started
// again; without a pause, if it has ended already. Returns the exit status for
// this process: the child's, if it failed before it had ever been ready. To be
// called while this process has one thread.
int Supervise(const std::string& program,
              const std::vector<std::string>& arguments);

}  // namespace fineserve::holder

#endif  // DAEMON_FINESERVED_HOLDER_SUPERVISOR_H_
