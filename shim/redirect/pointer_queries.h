#ifndef SHIM_REDIRECT_POINTER_QUERIES_H_
#define SHIM_REDIRECT_POINTER_QUERIES_H_

#include <cstddef>

#include "kernels/driver/entry_points.h"
#include "shim/host/original.h"
#include "shim/map/range_table.h"

namespace fineserve::shim {

// Answers queries about an address of redirected memory as if it were the
// allocation that the program requested: one range of its size, in the context
// that made it, without any granules. The answers say how this memory can be
// shared: resident memory by legacy IPC (shim/eviction/sharer.h), other
// redirected memory not at all. All other queries go to the driver. Stateless;
// thread-safe.
class PointerQueries {
 public:
  // `ranges` holds the redirected allocations, `mappings` the mappings of
  // redirected memory that the program made itself; both must outlive this
  // object.
  constexpr PointerQueries(RangeTable* ranges, RangeTable* mappings)
      : ranges_(ranges), mappings_(mappings) {}

  driver::CUresult AddressRange(const driver::EntryPoints& entry,
                                driver::CUdeviceptr* base, size_t* bytes,
                                driver::CUdeviceptr address,
                                const Original& original) const;
  driver::CUresult Attribute(const driver::EntryPoints& entry, void* value,
                             driver::CUpointer_attribute attribute,
                             driver::CUdeviceptr address,
                             const Original& original) const;
  driver::CUresult Attributes(const driver::EntryPoints& entry, unsigned count,
                              const driver::CUpointer_attribute* attributes,
                              void** values, driver::CUdeviceptr address,
                              const Original& original) const;

  // Finds the redirected or resident allocation, or mapping, that holds
  // `address`.
  bool Find(driver::CUdeviceptr address, Redirection* out) const;

 private:
  RangeTable* const ranges_;
  RangeTable* const mappings_;
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_POINTER_QUERIES_H_
