#include "kernels/driver/driver.h"

#include <dlfcn.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/driver/status.h"

namespace fineserve::driver {
namespace {

// Finds the entry point in the ABI that we were compiled for. The driver's own
// resolver finds it by name and version; a driver older than that resolver
// (CUDA 11.3) has only the exported symbol.
template <typename Function>
void Resolve(void* library, const EntryPoints& resolver, const char* symbol,
             const char* name, int since, Function** out) {
  void* found = nullptr;
  if (resolver.cuGetProcAddress_v2 != nullptr) {
    CUdriverProcAddressQueryResult status;
    if (resolver.cuGetProcAddress_v2(name, &found, since,
                                     CU_GET_PROC_ADDRESS_DEFAULT,
                                     &status) != CUDA_SUCCESS) {
      found = nullptr;
    }
  }
  if (found == nullptr) found = dlsym(library, symbol);
  *out = reinterpret_cast<Function*>(found);
}

absl::Status ResolveAll(void* library, EntryPoints* out) {
  EntryPoints resolver;
  resolver.cuGetProcAddress_v2 =
      reinterpret_cast<decltype(resolver.cuGetProcAddress_v2)>(
          dlsym(library, "cuGetProcAddress_v2"));
#define FINESERVE_RESOLVE(symbol, name, since, need, args)              \
  Resolve(library, resolver, #symbol, #name, since, &out->symbol);      \
  if (Need::need == Need::kRequired && out->symbol == nullptr) {        \
    return absl::FailedPreconditionError(absl::StrCat(                  \
        "this CUDA driver lacks " #symbol " (CUDA ", since / 1000, ".", \
        since % 1000 / 10, "); install a newer driver"));               \
  }
  FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_RESOLVE)
#undef FINESERVE_RESOLVE
#define FINESERVE_RESOLVE(plain, variant, name, since, args, call)             \
  out->plain##_##variant = reinterpret_cast<decltype(out->plain##_##variant)>( \
      dlsym(library, #plain "_" #variant));
  FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(FINESERVE_RESOLVE)
#undef FINESERVE_RESOLVE
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Driver> Driver::Load(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat("no CUDA driver: ", dlerror()));
  }
  auto entry_points = std::make_shared<EntryPoints>();
  if (absl::Status s = ResolveAll(handle, entry_points.get()); !s.ok()) {
    return s;
  }
  const EntryPoints& call = *entry_points;
  if (absl::Status s = ToStatus(call, call.cuInit(0), "cuInit"); !s.ok()) {
    return s;
  }
  int version = 0;
  if (absl::Status s = ToStatus(call, call.cuDriverGetVersion(&version),
                                "cuDriverGetVersion");
      !s.ok()) {
    return s;
  }
  return Driver(std::move(entry_points), version);
}

}  // namespace fineserve::driver
