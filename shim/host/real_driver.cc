#include "shim/host/real_driver.h"

#include <dlfcn.h>

#include <new>

#include "shim/host/libc_loader.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_ERROR_NOT_INITIALIZED;
using driver::CUDA_SUCCESS;
using driver::CUdriverProcAddressQueryResult;
using driver::CUresult;
using driver::EntryPoints;
using driver::Need;

constexpr uint64_t kPlain = driver::CU_GET_PROC_ADDRESS_DEFAULT;
constexpr uint64_t kPerThread =
    driver::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

using GetProcAddress = decltype(EntryPoints::cuGetProcAddress_v2);

// Finds a function. The one that a driver's resolver returns for a name may
// differ from the exported one, so the resolver is asked first, with the
// version that introduced the ABI we mean.
void* Find(void* library, GetProcAddress resolver, const char* symbol,
           const char* name, int since, uint64_t flags) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = {};
  if (resolver != nullptr &&
      resolver(name, &found, since, flags, &status) == CUDA_SUCCESS &&
      found != nullptr) {
    return found;
  }
  return RealDlsym()(library, symbol);
}

void FillFrom(void* library, Driver* out) {
  const auto resolver = reinterpret_cast<GetProcAddress>(
      RealDlsym()(library, "cuGetProcAddress_v2"));
  out->complete = true;
#define FINESERVE_RESOLVE(symbol, name, since, need, args)             \
  out->entry.symbol = reinterpret_cast<decltype(EntryPoints::symbol)>( \
      Find(library, resolver, #symbol, #name, since, kPlain));         \
  if (Need::need == Need::kRequired && out->entry.symbol == nullptr) { \
    out->complete = false;                                             \
  }
  FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_RESOLVE)
#undef FINESERVE_RESOLVE
#define FINESERVE_RESOLVE(plain, variant, name, since, args, call)     \
  out->entry.plain##_##variant =                                       \
      reinterpret_cast<decltype(EntryPoints::plain##_##variant)>(Find( \
          library, resolver, #plain "_" #variant, #name, since, kPerThread));
  FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(FINESERVE_RESOLVE)
#undef FINESERVE_RESOLVE
}

// Resolves the driver's functions. Null if no driver is loaded yet. The handle
// is never closed: it pins the code that our pointers lead to.
Driver* Resolve() {
  const DlopenFunction open = RealDlopen();
  if (open == nullptr || RealDlsym() == nullptr) return nullptr;
  void* library = open(kDriverSoname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto* found = new (std::nothrow) Driver;
  if (found != nullptr) FillFrom(library, found);
  return found;
}

// Publishes `mine`, or deletes it if another thread was faster. It takes no
// lock, so a fork in the middle leaves none held.
const Driver* Publish(std::atomic<const Driver*>* slot, Driver* mine) {
  const Driver* expected = nullptr;
  // Release: publishes the entry points. Pairs with the acquire in RealDriver.
  if (!slot->compare_exchange_strong(expected, mine, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
    delete mine;
    return expected;
  }
  if (mine->entry.cuMemAlloc_v2 != nullptr) {
    g_real_mem_alloc.store(mine->entry.cuMemAlloc_v2,
                           std::memory_order_relaxed);
  }
  if (mine->entry.cuMemFree_v2 != nullptr) {
    g_real_mem_free.store(mine->entry.cuMemFree_v2, std::memory_order_relaxed);
  }
  return mine;
}

template <auto Entry, typename... Arguments>
CUresult ResolveThenCall(Arguments... arguments) {
  const Driver* d = RealDriver();
  if (d == nullptr || d->entry.*Entry == nullptr) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  return (d->entry.*Entry)(arguments...);
}

}  // namespace

constinit std::atomic<MemAlloc> g_real_mem_alloc{
    &ResolveThenCall<&EntryPoints::cuMemAlloc_v2>};
constinit std::atomic<MemFree> g_real_mem_free{
    &ResolveThenCall<&EntryPoints::cuMemFree_v2>};

constinit std::atomic<const Driver*> g_resolved_driver{nullptr};

const Driver* ResolveDriver() {
  Driver* mine = Resolve();
  return mine == nullptr ? nullptr : Publish(&g_resolved_driver, mine);
}

}  // namespace fineserve::shim
