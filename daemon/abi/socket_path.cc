#include "daemon/abi/socket_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace fineserve::abi {
namespace {

constexpr char kSystemFolder[] = "/run/fineserve";

bool Fits(int written, size_t capacity) {
  return written > 0 && static_cast<size_t>(written) < capacity;
}

const char* NonEmptyEnv(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && value[0] != '\0' ? value : nullptr;
}

}  // namespace

bool RuntimeFolder(char (&out)[kPathBytes]) {
  struct stat st;
  if (const char* chosen = NonEmptyEnv("FINESERVE_RUNTIME_DIR")) {
    return Fits(snprintf(out, sizeof(out), "%s", chosen), sizeof(out));
  }
  if (geteuid() == 0 || (stat(kSystemFolder, &st) == 0 && S_ISDIR(st.st_mode) &&
                         access(kSystemFolder, X_OK) == 0)) {
    return Fits(snprintf(out, sizeof(out), "%s", kSystemFolder), sizeof(out));
  }
  if (const char* xdg = NonEmptyEnv("XDG_RUNTIME_DIR")) {
    return Fits(snprintf(out, sizeof(out), "%s/fineserve", xdg), sizeof(out));
  }
  return Fits(snprintf(out, sizeof(out), "/tmp/fineserve-%u", geteuid()),
              sizeof(out));
}

bool SocketPath(const char* folder, const uint8_t (&gpu_uuid)[16],
                char (&out)[kPathBytes]) {
  char uuid[41];
  FormatGpuUuid(gpu_uuid, uuid);
  return Fits(snprintf(out, sizeof(out), "%s/%s.sock", folder, uuid),
              sizeof(sockaddr_un::sun_path));
}

void FormatGpuUuid(const uint8_t (&u)[16], char (&out)[41]) {
  snprintf(out, sizeof(out),
           "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
           "%02x%02x%02x%02x%02x%02x",
           u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10],
           u[11], u[12], u[13], u[14], u[15]);
}

}  // namespace fineserve::abi
