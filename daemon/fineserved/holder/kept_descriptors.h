#ifndef DAEMON_FINESERVED_HOLDER_KEPT_DESCRIPTORS_H_
#define DAEMON_FINESERVED_HOLDER_KEPT_DESCRIPTORS_H_

#include <sys/types.h>

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::holder {

// The parent's side of DescriptorStore: the descriptors that a child has asked
// it to keep.
class KeptDescriptors {
 public:
  // Makes a socket that a child finds through $NOTIFY_SOCKET. If the kernel
  // refuses, the result is not valid, and errno is set.
  static KeptDescriptors Listen();

  bool valid() const { return socket_.valid(); }
  int socket() const { return socket_.get(); }
  // The value of $NOTIFY_SOCKET.
  const std::string& address() const { return address_; }

  // Reads one message, if there is one, and carries it out if `child` sent it.
  // False if there was none. `text` becomes the rest of the message, such as
  // "READY=1".
  bool Receive(pid_t child, std::string* text);

  size_t count() const { return kept_.size(); }
  // Called in a child that is about to become the program: moves the kept
  // descriptors to the numbers from 3 on, and names them in the environment.
  // False, with errno set, if there are not enough descriptors.
  bool GiveToChild() const;

 private:
  void Obey(absl::string_view message, driver::Descriptor descriptor,
            std::string* text);

  driver::Descriptor socket_;
  std::string address_;
  std::map<std::string, driver::Descriptor> kept_;
};

}  // namespace fineserve::holder

#endif  // DAEMON_FINESERVED_HOLDER_KEPT_DESCRIPTORS_H_
