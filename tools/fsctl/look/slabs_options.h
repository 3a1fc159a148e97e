#ifndef TOOLS_FSCTL_LOOK_SLABS_OPTIONS_H_
#define TOOLS_FSCTL_LOOK_SLABS_OPTIONS_H_

namespace fineserve::fsctl {

// Order of slabs; equal ones stay in the order of their indices.
enum class SlabOrder {
  kSlab,
  kState,
  kFormat,
  kEngine,
  kAge,      // longest without a change first
  kDensity,  // fullest first, unknown last
};
// Their names, in that order.
inline constexpr const char* kSlabOrders[] = {"slab",   "state", "format",
                                              "engine", "age",   "density"};

struct SlabsOptions {
  bool all = false;  // a line per slab instead of per run of slabs
  SlabOrder order = SlabOrder::kSlab;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LOOK_SLABS_OPTIONS_H_
