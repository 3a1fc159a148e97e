#include "shim/resolve.h"

#include <dlfcn.h>

#include "shim/elf_module.h"
#include "shim/settings.h"

namespace fineserve::shim {

// Written by every thread with the same value; the stubs read them in
// assembly.
constinit DlsymFunction fineserve_real_dlsym = nullptr;
constinit DlvsymFunction fineserve_real_dlvsym = nullptr;

namespace {

constexpr char kLibcSoname[] = "libc.so.6";
constexpr DlsymAnswer kAskLibc = {nullptr, 0};

DlsymAnswer Answer(void* value) { return {value, 1}; }

void* LibcFunction(const char* name) {
  Module libc;
  if (!FindModuleBySoname(kLibcSoname, &libc)) return nullptr;
  return FindDefinition(libc, name);
}

// What dlsym(RTLD_DEFAULT) would find if the shim were not there. The caller
// that glibc sees is the shim, so the search begins behind it; a failure
// leaves the usual message for dlerror.
void* DefinitionBehindShim(const char* name) {
  return RealDlsym()(RTLD_NEXT, name);
}

bool IsDriversDefinition(const void* found, const char* name) {
  Module driver;
  return FindModuleBySoname(kDriverSoname, &driver) &&
         FindDefinition(driver, name) == found;
}

// True if RTLD_NEXT, asked by `caller`, would find the shim's definition.
bool ShimIsNextAfter(const void* caller, const char* name) {
  Module from, shim;
  if (!FindModuleByAddress(caller, &from) ||
      !FindModuleByAddress(&fineserve_real_dlsym, &shim)) {
    return false;
  }
  for (size_t i = from.position + 1; i < shim.position; ++i) {
    Module between;
    if (FindModuleByPosition(i, &between) && FindDefinition(between, name)) {
      return false;
    }
  }
  return from.position < shim.position;
}

bool IsLookup(Hook hook) {
  return hook == Hook::kDlsym || hook == Hook::kDlvsym;
}

// A lookup function that was found by handle: ours in place of libc's.
DlsymAnswer FilterLookup(Hook hook, const void* found) {
  void* const ours = HookAddress(hook);
  const bool libcs = found == reinterpret_cast<void*>(RealDlsym()) ||
                     found == reinterpret_cast<void*>(RealDlvsym());
  return libcs || found == ours ? Answer(ours) : kAskLibc;
}

// RTLD_NEXT: glibc, seeing the original caller, finds our exported function
// exactly where it is next. What remains is to hide it from a process that has
// no driver.
DlsymAnswer FilterNext(Hook hook, const char* name, const void* caller) {
  if (IsLookup(hook) || DriverLoaded() || !ShimIsNextAfter(caller, name)) {
    return kAskLibc;
  }
  return Answer(DefinitionBehindShim(name));
}

// RTLD_DEFAULT and explicit handles: ask first, substitute only what would be
// the driver's or ours anyway.
DlsymAnswer FilterFound(Hook hook, void* handle, const char* name) {
  void* const found = RealDlsym()(handle, name);
  // Asked again with the right caller, which also sets dlerror.
  if (found == nullptr) return kAskLibc;
  if (IsLookup(hook)) return FilterLookup(hook, found);
  void* const ours = HookAddress(hook);
  if (found == ours) {
    return Answer(DriverLoaded() ? ours : DefinitionBehindShim(name));
  }
  const bool substitute = !Disabled() && IsDriversDefinition(found, name);
  return substitute ? Answer(ours) : kAskLibc;
}

}  // namespace

DlsymFunction RealDlsym() {
  if (fineserve_real_dlsym == nullptr) {
    fineserve_real_dlsym =
        reinterpret_cast<DlsymFunction>(LibcFunction("dlsym"));
  }
  return fineserve_real_dlsym;
}

DlvsymFunction RealDlvsym() {
  if (fineserve_real_dlvsym == nullptr) {
    fineserve_real_dlvsym =
        reinterpret_cast<DlvsymFunction>(LibcFunction("dlvsym"));
  }
  return fineserve_real_dlvsym;
}

DlopenFunction RealDlopen() {
  return reinterpret_cast<DlopenFunction>(LibcFunction("dlopen"));
}

bool DriverLoaded() {
  Module driver;
  return FindModuleBySoname(kDriverSoname, &driver);
}

extern "C" DlsymAnswer fineserve_filter_dlsym(void* handle, const char* name,
                                              const char* unused,
                                              const void* caller) {
  if (RealDlsym() == nullptr) return Answer(nullptr);
  if (name == nullptr) return kAskLibc;
  const Hook hook = HookForSymbol(name);
  if (hook == Hook::kNone) return kAskLibc;
  return handle == RTLD_NEXT ? FilterNext(hook, name, caller)
                             : FilterFound(hook, handle, name);
}

// Only the lookup functions have versions; the driver's functions have none.
// glibc skips an unversioned definition such as ours when a version is asked
// for, so RTLD_NEXT is answered here.
extern "C" DlsymAnswer fineserve_filter_dlvsym(void* handle, const char* name,
                                               const char* version,
                                               const void* caller) {
  if (RealDlvsym() == nullptr) return Answer(nullptr);
  if (name == nullptr || version == nullptr) return kAskLibc;
  const Hook hook = HookForSymbol(name);
  if (!IsLookup(hook)) return kAskLibc;
  if (handle == RTLD_NEXT) {
    return ShimIsNextAfter(caller, name) ? Answer(HookAddress(hook)) : kAskLibc;
  }
  void* const found = RealDlvsym()(handle, name, version);
  return found == nullptr ? kAskLibc : FilterLookup(hook, found);
}

}  // namespace fineserve::shim
