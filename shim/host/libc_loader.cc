#include "shim/host/libc_loader.h"

#include <atomic>

#include "shim/host/elf_module.h"

namespace fineserve::shim {
namespace {

constexpr char kLibcSoname[] = "libc.so.6";

// Looks a function up once and keeps it, because a program may call dlsym
// thousands of times while it starts. Every thread finds the same address.
template <typename Function>
Function FindOnce(std::atomic<Function>* known, const char* name) {
  Function found = known->load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = reinterpret_cast<Function>(LibcFunction(name));
    known->store(found, std::memory_order_relaxed);
  }
  return found;
}

constinit std::atomic<DlsymFunction> g_dlsym{nullptr};
constinit std::atomic<DlvsymFunction> g_dlvsym{nullptr};

}  // namespace

void* LibcFunction(const char* name) {
  Module libc;
  if (!FindModuleBySoname(kLibcSoname, &libc)) return nullptr;
  return FindDefinition(libc, name);
}

DlsymFunction RealDlsym() { return FindOnce(&g_dlsym, "dlsym"); }

DlvsymFunction RealDlvsym() { return FindOnce(&g_dlvsym, "dlvsym"); }

DlopenFunction RealDlopen() {
  return reinterpret_cast<DlopenFunction>(LibcFunction("dlopen"));
}

DlmopenFunction RealDlmopen() {
  return reinterpret_cast<DlmopenFunction>(LibcFunction("dlmopen"));
}

}  // namespace fineserve::shim
