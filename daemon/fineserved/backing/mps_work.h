#ifndef DAEMON_FINESERVED_BACKING_MPS_WORK_H_
#define DAEMON_FINESERVED_BACKING_MPS_WORK_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/fineserved/backing/nvml.h"

namespace fineserve::backing {

// Finds dead processes that may still have work on the GPU although the driver
// has ceased to list them: under MPS a client's work belongs to the server, and
// may go on after the client was killed. It has ended when the server says that
// it has terminated the client's work, or when the server is gone.
//
// A process that the driver has listed by itself is no client. A process that
// was never listed counts as a client if there is a server. Confined to one
// thread.
class MpsWork {
 public:
  // Asks the server to end the rest of a client's work; true once the server
  // has ended it.
  using Terminate = std::function<bool(pid_t server, pid_t client)>;
  explicit MpsWork(Terminate terminate) : terminate_(std::move(terminate)) {}

  // Learns from a list which processes are clients of which server.
  void Saw(const DeviceProcesses& listed);

  // Returns the dead processes in `awaited` whose work may still run although
  // `listed`, which was passed to Saw, does not name them. Asks the servers to
  // end that work.
  std::vector<pid_t> StillAtWork(const DeviceProcesses& listed,
                                 const std::vector<pid_t>& awaited);

 private:
  struct Client {
    std::set<pid_t> servers;  // its own is among them; empty if it is no client
    bool has_ended = false;
    int pause = 0;  // lists until the server is asked again
  };
  bool HasEnded(pid_t pid, const DeviceProcesses& listed);

  const Terminate terminate_;
  std::map<pid_t, Client> seen_;
};

// Has MPS's control daemon terminate the client's work. `pipes` are the folders
// that may contain its pipes; "" is its default.
bool TerminateMpsClient(const std::vector<std::string>& pipes, pid_t server,
                        pid_t client);

}  // namespace fineserve::backing

#endif  // DAEMON_FINESERVED_BACKING_MPS_WORK_H_
