#include "daemon/base/descriptor_store.h"

#include <errno.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"

namespace fineserve::holder {
namespace {

// Heuristic: a busy service manager takes some milliseconds to handle a
// message.
constexpr uint64_t kFlushUs = 10'000'000;

struct FreeNames {
  void operator()(char** names) const {
    for (char** name = names; *name != nullptr; ++name) free(*name);
    free(names);
  }
};

// True if this error means that the listener has gone. The daemon detects that
// separately, by its own watch.
bool HasGone(int error) { return error == ECONNREFUSED || error == ENOENT; }

}  // namespace

// Without $FDSTORE, the parent may only want notifications, and might never
// read the stored descriptors.
bool DescriptorStore::Exists() {
  const char* most = getenv("FDSTORE");
  return most != nullptr && atoi(most) > 0 &&
         getenv("NOTIFY_SOCKET") != nullptr;
}

DescriptorStore::Named DescriptorStore::TakeAll() {
  Named taken;
  char** raw = nullptr;
  const int count = sd_listen_fds_with_names(/*unset_environment=*/1, &raw);
  const std::unique_ptr<char*, FreeNames> names(raw);
  for (int i = 0; i < count; ++i) {
    // If a name occurs twice, its second descriptor is closed.
    taken.try_emplace(names.get()[i],
                      driver::Descriptor(SD_LISTEN_FDS_START + i));
  }
  return taken;
}

absl::Status DescriptorStore::Store(const std::string& name, int descriptor) {
  if (!Exists()) return absl::OkStatus();
  // FDPOLL=0: a descriptor is kept even if its peer has hung up.
  const std::string message =
      absl::StrCat("FDSTORE=1\nFDPOLL=0\nFDNAME=", name);
  const int sent = sd_pid_notify_with_fds(0, /*unset_environment=*/0,
                                          message.c_str(), &descriptor, 1);
  if (sent > 0 || HasGone(-sent)) return absl::OkStatus();
  return absl::UnavailableError(
      base::WithErrno("cannot store the descriptor " + name, -sent));
}

void DescriptorStore::Remove(const std::string& name) {
  if (!Exists()) return;
  sd_notify(0, absl::StrCat("FDSTOREREMOVE=1\nFDNAME=", name).c_str());
}

absl::Status DescriptorStore::Flush() {
  if (!Exists()) return absl::OkStatus();
  const int done = sd_notify_barrier(/*unset_environment=*/0, kFlushUs);
  if (done > 0 || HasGone(-done)) return absl::OkStatus();
  return absl::UnavailableError(base::WithErrno(
      "the parent that keeps descriptors does not answer", -done));
}

}  // namespace fineserve::holder
