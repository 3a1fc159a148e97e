#ifndef TOOLS_FSCTL_POOL_SLAB_ORDER_H_
#define TOOLS_FSCTL_POOL_SLAB_ORDER_H_

namespace fineserve::fsctl {

// What the listing of slabs goes by; those alike stay in the order of slabs.
enum class SlabOrder {
  kSlab,
  kState,
  kFormat,
  kEngine,
  kAge,      // longest without a change first
  kDensity,  // fullest first; last those of which it is not known
};
// In that order.
inline constexpr const char* kSlabOrders[] = {"slab",   "state", "format",
                                              "engine", "age",   "density"};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_POOL_SLAB_ORDER_H_
