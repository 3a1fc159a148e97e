// Puts the plugins into $PYTHONPATH before main if the host is a Python
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

struct Plugin {
  const char* folder;  // beside this library
  const char* module;  // in the folder
};
// SGLang's plugin uses modules of vLLM's. The last plugin comes first in the
// path.
constexpr Plugin kPlugins[] = {{"/sglang", "/fineserve_sglang/plugin.py"},
                               {"/vllm", "/fineserve_vllm/plugin.py"}};

bool InPython() {
  char program[PATH_MAX] = "";
  return readlink("/proc/self/exe", program, sizeof(program) - 1) > 0 &&
         IsPython(program);
}

// Finds a plugin's folder, which is beside this library.
bool FindPlugin(const Plugin& plugin, char (&folder)[PATH_MAX]) {
  Module own;
  char library[PATH_MAX];
  if (!FindModuleByAddress(reinterpret_cast<const void*>(&InPython), &own) ||
      realpath(own.path, library) == nullptr) {
    return false;
  }
  *strrchr(library, '/') = '\0';
  char module[PATH_MAX];
  const size_t length = strlen(library) + strlen(plugin.folder);
  if (length + strlen(plugin.module) >= PATH_MAX) return false;
  strcpy(stpcpy(folder, library), plugin.folder);
  strcpy(stpcpy(module, folder), plugin.module);
  return access(module, R_OK) == 0;
}

void Prepend(const char* folder) {
  char path[8 * PATH_MAX];
  if (PrependToPath(folder, getenv("PYTHONPATH"), path, sizeof(path))) {
    setenv("PYTHONPATH", path, 1);
  }
}

// Runs as a constructor, to which glibc passes main's arguments.
__attribute__((constructor)) void ShowPlugins(int, char** argv, char**) {
  if (!InPython() || Disabled()) return;
  const bool ignored = IgnoresPythonPath(argv);
  bool found = false;
  for (const Plugin& plugin : kPlugins) {
    char folder[PATH_MAX];
    if (!FindPlugin(plugin, folder)) continue;
    found = true;
    if (!ignored) Prepend(folder);
  }
  if (found && ignored && getenv("FINESERVE_VIEW") != nullptr) {
    Warn(
        "this Python ignores PYTHONPATH (-E or -I) and will not load the "
        "engine's plugin: start it without these options, or its KV has no "
        "view");
  }
}

}  // namespace
}  // namespace fineserve::shim
