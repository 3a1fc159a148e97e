#ifndef DAEMON_FLEET_DOOR_DOOR_H_
#define DAEMON_FLEET_DOOR_DOOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "daemon/fleet/door/message.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::apply {

// The socket by which this user's fsctl talks to a running process about its
// fleet: NAME.fleet in the runtime folder, mode 0600. A client writes one
// question, ends its side, and reads one answer until the end.
//
// Threat model: only this user and root get in (folder 0700, socket 0600, and
// the kernel says who the peer is); they may be broken or slow. No call waits
// for a client, the size of its messages is bounded, and beyond kMostClients
// the one that has been here longest has to go.
//
// Sign of life: Turn sets the socket's modification time to CLOCK_MONOTONIC
// every 250 ms while it could take a client. A process that hangs, was killed
// or has no descriptor left leaves the socket behind, and with it the time of
// its last sign. Turn also checks every 250 ms whether the folder's disk is
// full, and answers tell since when.
//
// Confined to one thread. `descriptor` becomes readable when Turn has something
// to do; it fits into any event loop.
class Door {
 public:
  using Reply = std::function<Answer(const Question&)>;

  // Creates the folder if it does not exist. Replaces a socket of this name,
  // which the caller knows to be stale.
  static absl::StatusOr<std::unique_ptr<Door>> Open(const std::string& folder,
                                                    const std::string& name,
                                                    Reply reply);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  int descriptor() const { return events_.get(); }
  // Handles what has arrived.
  void Turn();

 private:
  static constexpr size_t kMostClients = 16;

  struct Client {
    driver::Descriptor socket;
    std::string question;
    bool answers = false;
    std::string answer;  // what is not yet sent of it
    uint64_t number;     // in the order of their arrival
  };

  Door(std::string path, driver::Descriptor listener, driver::Descriptor alarm,
       driver::Descriptor events, Reply reply);
  void TakeAlarm();
  void SetSignOfLife();
  void LookAtDisk();
  void Accept();
  void MakeRoom();
  void Listen(bool listens);
  // Returns false if the client is finished.
  bool Serve(Client* client);
  bool Read(Client* client);
  bool Write(Client* client);

  const std::string path_;
  const driver::Descriptor listener_;
  const driver::Descriptor alarm_;   // timerfd
  const driver::Descriptor events_;  // epoll
  const Reply reply_;
  std::map<int, Client> clients_;  // by descriptor
  absl::optional<std::chrono::steady_clock::time_point> full_since_;
  uint64_t arrivals_ = 0;
};

// Returns the name of this process's door, with its pid, because several
// processes of `program` may run. The name of fineserved's door contains its
// GPU's UUID instead.
std::string ProcessDoor(const std::string& program);
// True if `path` is a door of `program`.
bool IsDoorOf(const std::string& path, const std::string& program);

// Returns the seconds since the last sign of life of the process behind the
// door at `path`. Nullopt if there is no such door, or its process gives no
// signs of life.
absl::optional<double> DoorSilence(const std::string& path);

// Returns the paths of the doors in a runtime folder, sorted; each may be
// stale.
std::vector<std::string> ListDoors(const std::string& folder);

// Puts a question to the process behind the door at `path` and waits for its
// answer, for `timeout` at most. Errors:
//   NotFound            its process has ended
//   PermissionDenied    another user may be
//   DeadlineExceeded    it does not answer
//   DataLoss            it answers, but not as we do
absl::StatusOr<Answer> AskDoor(const std::string& path,
                               const Question& question,
                               absl::Duration timeout);

}  // namespace fineserve::apply

#endif  // DAEMON_FLEET_DOOR_DOOR_H_
