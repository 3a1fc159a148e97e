// Puts the plugin into $PYTHONPATH before main if the host is a Python
// interpreter (python_path.h).

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/hooks/python_path.h"
#include "shim/host/elf_module.h"
#include "shim/host/environment.h"
#include "shim/host/warn.h"

namespace fineserve::shim {
namespace {

constexpr char kFolder[] = "/vllm";
constexpr char kPlugin[] = "/fineserve_vllm/plugin.py";

bool InPython() {
  char program[PATH_MAX] = "";
  return readlink("/proc/self/exe", program, sizeof(program) - 1) > 0 &&
         IsPython(program);
}

// Finds the plugin's folder, which lies beside this library.
bool FindPlugin(char (&folder)[PATH_MAX]) {
  Module own;
  char library[PATH_MAX];
  if (!FindModuleByAddress(reinterpret_cast<const void*>(&InPython), &own) ||
      realpath(own.path, library) == nullptr) {
    return false;
  }
  *strrchr(library, '/') = '\0';
  char plugin[PATH_MAX];
  const size_t length = strlen(library) + strlen(kFolder);
  if (length + strlen(kPlugin) >= PATH_MAX) return false;
  strcpy(stpcpy(folder, library), kFolder);
  strcpy(stpcpy(plugin, folder), kPlugin);
  return access(plugin, R_OK) == 0;
}

// glibc passes main's arguments to constructors.
__attribute__((constructor)) void ShowPlugin(int, char** argv, char**) {
  char folder[PATH_MAX];
  if (!InPython() || Disabled() || !FindPlugin(folder)) return;
  if (IgnoresPythonPath(argv)) {
    if (getenv("FINESERVE_VIEW") != nullptr) {
      Warn(
          "this Python ignores PYTHONPATH (-E or -I) and will not load the "
          "vLLM plugin: start it without these options, or its KV has no view");
    }
    return;
  }
  char path[8 * PATH_MAX];
  if (PrependToPath(folder, getenv("PYTHONPATH"), path, sizeof(path))) {
    setenv("PYTHONPATH", path, 1);
  }
}

}  // namespace
}  // namespace fineserve::shim
