#ifndef DAEMON_FINESERVED_SERVER_ENDPOINT_H_
#define DAEMON_FINESERVED_SERVER_ENDPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/driver/descriptor.h"
#include "kernels/driver/keep_folder.h"

namespace fineserve::server {

// A daemon's files: the runtime folder (0700), and in it one lock and one
// socket (0600) per GPU. The kernel releases the lock when its process dies, so
// a socket whose lock is free is stale.
class Endpoint {
 public:
  // Creates the folder if it is missing ("" means the default) and takes the
  // GPU's lock. FailedPrecondition, naming the pid, if another daemon serves
  // this GPU; PermissionDenied if other users can enter the folder.
  static absl::StatusOr<Endpoint> Claim(std::string folder,
                                        const uint8_t (&gpu_uuid)[16]);
  Endpoint(Endpoint&&) = default;
  Endpoint& operator=(Endpoint&&) = delete;
  ~Endpoint();  // removes the socket, unless it is kept for the next daemon

  // Binds and listens, replacing a stale socket. Peers' credentials come with
  // every message (SO_PASSCRED is inherited by accepted sockets). `kept` is a
  // socket that a former daemon bound here, and clients may already wait in it;
  // it is used if the path still leads to it.
  absl::StatusOr<driver::Descriptor> Listen(driver::Descriptor kept = {});

  // Sets whether the socket outlives this object.
  void Keep(bool is_kept) { is_kept_ = is_kept; }

  const std::string& socket_path() const { return socket_path_; }
  // The runtime folder.
  std::string folder() const {
    return socket_path_.substr(0, socket_path_.rfind('/'));
  }

 private:
  Endpoint(driver::Descriptor folder, driver::Descriptor lock,
           std::string socket_path)
      : folder_(std::move(folder)),
        lock_(std::move(lock)),
        socket_path_(std::move(socket_path)) {}

  driver::Descriptor folder_;  // kept from being cleaned up
  driver::Descriptor lock_;
  std::string socket_path_;
  bool is_kept_ = false;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_ENDPOINT_H_
