#include "daemon/contract/finding/daemon_sockets.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/unix_socket.h"
#include "daemon/contract/abi/socket_path.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::finding {
namespace {

// Returns the UUID's digits, without the "GPU-" or "MIG-" before them.
absl::string_view Digits(absl::string_view name) {
  const bool has_kind = absl::StartsWithIgnoreCase(name, "GPU-") ||
                        absl::StartsWithIgnoreCase(name, "MIG-");
  return has_kind ? name.substr(4) : name;
}

constexpr char kSocket[] = ".sock";
constexpr char kAdmission[] = ".admission";

// Returns the sockets in `folder` with this ending whose GPU `gpu` means,
// sorted.
std::vector<std::string> List(const std::string& folder, const std::string& gpu,
                              absl::string_view ending) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string path = entry.path().string();
    if (absl::EndsWith(path, ending) && entry.is_socket(error) &&
        MeansGpu(gpu, GpuOfSocket(path))) {
      paths.push_back(std::move(path));
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

bool MeansGpu(absl::string_view name, absl::string_view uuid) {
  return absl::StartsWithIgnoreCase(uuid, name) ||
         absl::StartsWithIgnoreCase(Digits(uuid), Digits(name));
}

bool MayBeOneGpu(absl::string_view a, absl::string_view b) {
  return MeansGpu(a, b) || MeansGpu(b, a);
}

std::string RuntimeFolder() {
  char folder[abi::kPathBytes];
  return abi::RuntimeFolder(folder) ? folder : ".";
}

absl::Status MakeRuntimeFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return base::Cannot("make", folder);
  }
  struct stat st;
  if (lstat(folder.c_str(), &st) != 0) return base::Cannot("read", folder);
  if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
      (st.st_mode & 0077) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(folder,
                   " must be a folder of this user with mode 0700; remove it "
                   "or set FINESERVE_RUNTIME_DIR"));
}

bool IsSocketPath(absl::string_view gpu) { return absl::StrContains(gpu, '/'); }

std::string GpuOfSocket(absl::string_view socket) {
  absl::string_view file = socket.substr(socket.rfind('/') + 1);
  return std::string(file.substr(0, file.rfind('.')));
}

std::vector<std::string> ListSockets(const std::string& folder,
                                     const std::string& gpu) {
  if (IsSocketPath(gpu)) return {gpu};
  return List(folder, gpu, kSocket);
}

std::string AdmissionPath(absl::string_view socket) {
  absl::ConsumeSuffix(&socket, kSocket);
  return absl::StrCat(socket, kAdmission);
}

std::vector<std::string> ListAdmissionPaths(const std::string& folder,
                                            const std::string& gpu) {
  std::vector<std::string> paths =
      IsSocketPath(gpu) ? std::vector<std::string>{AdmissionPath(gpu)}
                        : List(folder, gpu, kAdmission);
  std::erase_if(paths, [](const auto& path) { return !IsListenedAt(path); });
  return paths;
}

absl::StatusOr<std::string> FindAdmissionPath(const std::string& folder,
                                              const std::string& gpu) {
  std::vector<std::string> paths = List(folder, gpu, kAdmission);
  if (paths.size() > 1) {
    std::erase_if(paths, [](const auto& path) { return !IsListenedAt(path); });
  }
  if (paths.size() == 1) return paths[0];
  const std::string named = gpu.empty() ? "any GPU" : "GPU " + gpu;
  if (paths.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no fineserved admits requests for ", named, " in ",
                     folder, "; start one with --fleet"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      paths.size(), " daemons admit requests for ", named, " in ", folder,
      "; give each [[engine]] of the fleet a gpu that matches one of them"));
}

bool IsListenedAt(const std::string& path) {
  const driver::Descriptor fd(
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return base::ConnectUnix(fd.get(), path) ||
         errno == EAGAIN;  // its queue is full
}

}  // namespace fineserve::finding
