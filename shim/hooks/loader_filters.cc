#include "shim/hooks/loader_filters.h"

#include <dlfcn.h>

#include <atomic>

#include "shim/hooks/gated_hooks.h"
#include "shim/hooks/hook_table.h"
#include "shim/hooks/late_calls.h"
#include "shim/hooks/process_state.h"
#include "shim/hooks/resolver_hooks.h"
#include "shim/host/elf_module.h"
#include "shim/host/environment.h"
#include "shim/host/real_driver.h"
#include "shim/host/warn.h"

namespace fineserve::shim {

// Every thread writes the same values; the stubs read them in assembly.
constinit DlsymFunction fineserve_real_dlsym = nullptr;
constinit DlvsymFunction fineserve_real_dlvsym = nullptr;

namespace {

using abi::Path;

// Always fails, because nothing can be opened in a process without glibc.
void* OpenNothing(const char*, int) { return nullptr; }
void* OpenNothingIn(long, const char*, int) { return nullptr; }

}  // namespace

constinit DlopenFunction fineserve_real_dlopen = &OpenNothing;
constinit DlmopenFunction fineserve_real_dlmopen = &OpenNothingIn;

namespace {

constexpr DlsymAnswer kAskLibc = {nullptr, 0};

DlsymAnswer Answer(void* value) { return {value, 1}; }

DlsymAnswer AnswerHook(Hook hook, Path path) {
  g_redirector.scoreboard().CountUse(hook, path);
  return Answer(HookAddress(hook));
}

// Returns the definition that dlsym(RTLD_DEFAULT) would find if the shim were
// not loaded. glibc sees the shim as the caller, so RTLD_NEXT searches the
// modules after the shim; a failure leaves the usual message for dlerror.
void* DefinitionBehindShim(const char* name) {
  return RealDlsym()(RTLD_NEXT, name);
}

// Returns the driver's definition. Null if no driver is loaded, or if an older
// driver lacks the function; then the shim must appear to lack it too.
void* DriversDefinition(const char* name) {
  Module driver;
  return FindModuleBySoname(kDriverSoname, &driver)
             ? FindDefinition(driver, name)
             : nullptr;
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

// Handles a lookup that found one of the loader's functions: replaces libc's
// function with ours.
DlsymAnswer FilterLoaders(Hook hook, Path path, const char* name,
                          const void* found) {
  const bool known = found == HookAddress(hook) || found == LibcFunction(name);
  return known ? AnswerHook(hook, path) : kAskLibc;
}

// Handles RTLD_NEXT. glibc, which sees the original caller, finds our exported
// function wherever it is the next one. We only have to hide it from a process
// that has no driver.
DlsymAnswer FilterNext(Hook hook, const char* name, const void* caller) {
  if (!ShimIsNextAfter(caller, name)) return kAskLibc;
  if (IsLoaders(hook) || DriversDefinition(name) != nullptr) {
    g_redirector.scoreboard().CountUse(hook, Path::kNext);
    return kAskLibc;
  }
  return Answer(DefinitionBehindShim(name));
}

// Handles RTLD_DEFAULT and explicit handles. We look the name up first, and
// substitute only a function that is the driver's or ours.
DlsymAnswer FilterFound(Hook hook, void* handle, const char* name) {
  void* const found = RealDlsym()(handle, name);
  // The stub repeats the failed lookup with the right caller, which also sets
  // dlerror.
  if (found == nullptr) return kAskLibc;
  const Path path = handle == RTLD_DEFAULT ? Path::kDefault : Path::kHandle;
  if (IsLoaders(hook)) return FilterLoaders(hook, path, name, found);
  if (found == HookAddress(hook)) {
    return DriversDefinition(name) != nullptr
               ? AnswerHook(hook, path)
               : Answer(DefinitionBehindShim(name));
  }
  const bool substitute = !Disabled() && found == DriversDefinition(name);
  return substitute ? AnswerHook(hook, path) : kAskLibc;
}

// Handles a lookup of a gated function that would find our function or the
// driver's: returns ours if the process may be evicted, else the driver's.
DlsymAnswer FilterGated(GatedCall call, void* handle, const char* name,
                        const void* caller) {
  if (handle == RTLD_NEXT) {
    if (!ShimIsNextAfter(caller, name)) return kAskLibc;
  }
  void* const found =
      RealDlsym()(handle == RTLD_NEXT ? RTLD_DEFAULT : handle, name);
  if (found == nullptr) return kAskLibc;
  Module finder, shim;
  const bool is_ours = FindModuleByAddress(found, &finder) &&
                       FindModuleByAddress(&fineserve_real_dlsym, &shim) &&
                       finder.base == shim.base;
  void* const drivers = DriversDefinition(name);
  if (!is_ours && found != drivers) return kAskLibc;
  if (drivers == nullptr) return Answer(DefinitionBehindShim(name));
  // Requires a driver, because Pass needs the resolved one.
  const bool gated = RealDriver() != nullptr && IsEvictable();
  return Answer(gated ? GatedAddress(call) : drivers);
}

// True if the driver knows the name in the latest CUDA version that our list
// covers.
bool IsKnownInListedCuda(const Driver& real, const char* symbol) {
  char name[128] = "";
  const size_t length = NameLength(symbol);
  if (length >= sizeof(name)) return false;
  memcpy(name, symbol, length);
  void* found = nullptr;
  return CallOptional(real.entry.cuGetProcAddress_v2, name, &found,
                      driver::kListedCudaVersion, uint64_t{0},
                      nullptr) == driver::CUDA_SUCCESS &&
         found != nullptr;
}

// Handles a symbol that may be later than our list.
DlsymAnswer FilterLate(void* handle, const char* symbol) {
  const Driver* const real = RealDriver();
  void* const drivers = DriversDefinition(symbol);
  if (real == nullptr || drivers == nullptr) return kAskLibc;
  void* const scope = handle == RTLD_NEXT ? RTLD_DEFAULT : handle;
  const bool is_late =
      IsLaterAbi(symbol) || !IsKnownInListedCuda(*real, symbol);
  return is_late && RealDlsym()(scope, symbol) == drivers
             ? Answer(LateCall(symbol, drivers))
             : kAskLibc;
}

int WithoutDeepbind(const char* file, int flags) {
  if ((flags & RTLD_DEEPBIND) == 0 || Disabled() || KeepDeepbind()) {
    return flags;
  }
  g_redirector.scoreboard().CountDeepbind();
  static constinit std::atomic<bool> warned{false};
  if (!warned.exchange(true, std::memory_order_relaxed)) {
    Warn(
        "opening %s without RTLD_DEEPBIND, which would lead its CUDA calls "
        "past FineServe (FINESERVE_KEEP_DEEPBIND=1 keeps the flag)",
        file == nullptr ? "the program" : file);
  }
  return flags & ~RTLD_DEEPBIND;
}

}  // namespace

extern "C" DlsymAnswer fineserve_filter_dlsym(void* handle, const char* name,
                                              const char* unused,
                                              const void* caller) {
  fineserve_real_dlsym = RealDlsym();
  if (fineserve_real_dlsym == nullptr) return Answer(nullptr);
  if (name == nullptr) return kAskLibc;
  const Hook hook = HookForSymbol(name);
  if (hook == Hook::kNone) {
    const GatedCall gated = GatedForSymbol(name);
    if (gated != GatedCall::kNone)
      return FilterGated(gated, handle, name, caller);
    if ((!IsLaterAbi(name) && !IsNamedAsATouch(name)) || !IsEvictable())
      return kAskLibc;
    return FilterLate(handle, name);
  }
  return handle == RTLD_NEXT ? FilterNext(hook, name, caller)
                             : FilterFound(hook, handle, name);
}

// Only the loader's functions have versions; the driver's have none. glibc
// skips an unversioned definition such as ours when a version is asked for, so
// RTLD_NEXT is answered here.
extern "C" DlsymAnswer fineserve_filter_dlvsym(void* handle, const char* name,
                                               const char* version,
                                               const void* caller) {
  fineserve_real_dlvsym = RealDlvsym();
  if (fineserve_real_dlvsym == nullptr) return Answer(nullptr);
  if (name == nullptr || version == nullptr) return kAskLibc;
  const Hook hook = HookForSymbol(name);
  if (!IsLoaders(hook)) return kAskLibc;
  constexpr Path kPath = Path::kVersioned;
  if (handle == RTLD_NEXT) {
    return ShimIsNextAfter(caller, name) ? AnswerHook(hook, kPath) : kAskLibc;
  }
  void* const found = RealDlvsym()(handle, name, version);
  return found == nullptr ? kAskLibc : FilterLoaders(hook, kPath, name, found);
}

extern "C" int fineserve_filter_dlopen(const char* file, int flags) {
  if (DlopenFunction real = RealDlopen()) fineserve_real_dlopen = real;
  return WithoutDeepbind(file, flags);
}

extern "C" int fineserve_filter_dlmopen(long space, const char* file,
                                        int flags) {
  if (DlmopenFunction real = RealDlmopen()) fineserve_real_dlmopen = real;
  if (space == LM_ID_BASE) return WithoutDeepbind(file, flags);
  g_redirector.scoreboard().CountForeignNamespace();
  return flags;
}

}  // namespace fineserve::shim
