#ifndef DAEMON_FINESERVED_HOLDER_KEPT_DESCRIPTORS_H_
#define DAEMON_FINESERVED_HOLDER_KEPT_DESCRIPTORS_H_

#include <sys/types.h>

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::holder {

// The parent's side of DescriptorStore: what a child has asked it to keep.
class KeptDescriptors {
 public:
  // Makes a socket that a child finds by $NOTIFY_SOCKET. Not valid, with errno
  // set, if the kernel refuses.
  static KeptDescriptors Listen();

  bool valid() const { return socket_.valid(); }
  int socket() const { return socket_.get(); }
  // The value of $NOTIFY_SOCKET.
  const std::string& address() const { return address_; }

  // Reads one message, if there is one, and obeys it if `child` has sent it.
  // False if there was none. `text` becomes the rest of the message, such as
  // "READY=1".
  bool Receive(pid_t child, std::string* text);

  size_t count() const { return kept_.size(); }
  // In a child that is about to become the program: puts what is kept at the
  // descriptors from 3 on, and names it in the environment. False, with errno
  // set, if there are not enough descriptors.
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
