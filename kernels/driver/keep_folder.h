#ifndef KERNELS_DRIVER_KEEP_FOLDER_H_
#define KERNELS_DRIVER_KEEP_FOLDER_H_

#include <fcntl.h>
#include <sys/file.h>

#include <string>

#include "kernels/driver/descriptor.h"

namespace fineserve::driver {

// Returns a descriptor that protects the folder while it is open:
// systemd-tmpfiles leaves the folder and everything below it alone, however old
// the files are, since it skips folders with a BSD lock (tmpfiles.d(5);
// systemd's TEMPORARY_DIRECTORIES: "flock(dir_fd, LOCK_SH)"). This is needed
// because locks and plans may be in /tmp. Without a folder the descriptor is
// not valid.
inline Descriptor KeepFolder(const std::string& folder) {
  Descriptor kept(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (kept.valid()) flock(kept.get(), LOCK_SH | LOCK_NB);
  return kept;
}

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_KEEP_FOLDER_H_
