#ifndef SHIM_MAP_VIEW_MAPPING_H_
#define SHIM_MAP_VIEW_MAPPING_H_

#include <cstddef>
#include <cstdint>

#include "daemon/abi/slab_table.h"
#include "kernels/driver/entry_points.h"
#include "shim/link/daemon_link.h"
#include "shim/map/granules.h"
#include "shim/map/range_table.h"
#include "shim/map/view_scratch.h"

namespace fineserve::shim {

// What a view's tensors look like. Everything is checked by who fills it in.
struct ViewShape {
  abi::ViewMode mode = abi::ViewMode::kNone;
  uint32_t planes = 0;
  uint32_t planes_per_allocation = 0;
  uint64_t page_bytes = 0;
  uint64_t blocks = 0;       // that each plane has room for
  uint64_t plane_bytes = 0;  // a slab's share of each plane
  uint64_t granule_bytes = 0;
  uint32_t granules_per_plane = 0;  // of a slab
  uint32_t granules_per_slab = 0;
  uint32_t slabs = 0;  // view indices 1 … slabs lie wholly in every plane
  uint64_t granularity = 0;  // the driver's
  uint64_t epoch = 0;

  uint64_t stride() const { return blocks * page_bytes; }
  uint64_t tensor_bytes() const { return planes_per_allocation * stride(); }
  uint32_t tensors() const { return planes / planes_per_allocation; }
  // Granules of a slab that planes use; the others are tail waste.
  uint32_t used_granules() const { return planes * granules_per_plane; }
};

// An engine's KV tensors as a view of the pool (design.md §3.2, §3.4, §3.5):
//
//   plane p  | index 0 | index 1 | … | index n | rest |   index: plane_bytes
//   at first |                scratch                 |
//   then     | scratch | slab 0  | … | slab n-1| scratch |   mode view
//            | scratch | leased slabs, scratch | scratch |   guarded
//            | scratch | leased slabs, nothing | scratch |   strict
//
// Slab v - 1 gives granules [p × granules_per_plane, …) of its own to plane p.
// Addresses never change. Unmapped addresses are never touched by an engine
// that uses leased blocks only.
//
// Who may die where. The daemon: granules that were imported stay; what was to
// be imported fails, and is undone. This process: its mappings go with it; the
// daemon waits for the driver before it hands its slabs on. A driver call that
// fails is undone; if that fails too, the slab is broken: it is neither used
// nor given back, because it may still be mapped.
//
// Confined to one thread at a time; any context (the tensors' own is
// remembered). Trivially destroyed: Close gives the memory back.
class ViewMapping {
 public:
  constexpr ViewMapping() = default;

  // Begins with no tensors. False if memory is short.
  bool Open(const ViewShape& shape);
  // After UnmapAll and the removal of every tensor.
  void Close();

  const ViewShape& shape() const { return shape_; }
  driver::CUcontext context() const { return context_; }

  // Whether an allocation of so many bytes is a tensor: as many as its planes
  // need, or what an allocator rounds that up to.
  bool Fits(uint64_t bytes) const;
  // Puts a tensor on scratch, in the current context. kWrongSize if it is none
  // or there are all already; on an error everything was undone.
  MapResult AddTensor(const driver::EntryPoints& entry, uint64_t bytes,
                      Redirection* out);
  // Unmaps what is left of the tensor and forgets it. The caller has waited
  // for the context.
  driver::CUresult RemoveTensor(const driver::EntryPoints& entry,
                                driver::CUdeviceptr base);
  bool complete() const { return tensor_count_ == shape_.tensors(); }
  bool empty() const { return tensor_count_ == 0; }

  // Puts the pool in place of the scratch as the mode wants it. The caller has
  // waited for the context. `memory(v)` tells which memory a slab is; one that
  // has none (0) keeps its scratch. On an error the view has nothing in place
  // of slabs: it must not be used.
  template <typename Memory>
  MapResult Activate(const driver::EntryPoints& entry, DaemonLink* link,
                     Memory memory) {
    return ActivateWith(entry, link,
                        {&memory, [](const void* m, uint32_t v) -> uint64_t {
                           return (*static_cast<const Memory*>(m))(v);
                         }});
  }

  // Whether the pool's slab lies at its place.
  bool resident(uint32_t v) const { return backing_[v] == Backing::kPool; }
  bool broken(uint32_t v) const { return backing_[v] == Backing::kBroken; }
  // Which memory of the slab lies there; 0: none.
  uint64_t memory(uint32_t v) const { return resident(v) ? memory_[v] : 0; }
  // Exchanges a slab's place for its granules, and back. No work of the
  // context touches that place. `memory` was read before.
  MapResult SwapIn(const driver::EntryPoints& entry, DaemonLink* link,
                   uint32_t v, uint64_t memory);
  driver::CUresult SwapOut(const driver::EntryPoints& entry, uint32_t v);

  // Unmaps all tensors; their addresses stay reserved. The caller has waited
  // for the context. On an error something may still be mapped, and the leases
  // must be kept.
  driver::CUresult UnmapAll(const driver::EntryPoints& entry);

  // Driver calls so far.
  uint64_t calls() const { return calls_; }
  void CountCalls(uint64_t calls) { calls_ += calls; }

 private:
  enum class Backing : uint8_t { kScratch, kPool, kNothing, kBroken };
  struct Tensor {
    driver::CUdeviceptr base;  // 0: none
    uint64_t reserved_bytes;
    bool mapped;
  };
  struct MemoryOf {
    const void* state;
    uint64_t (*ask)(const void* state, uint32_t v);
    uint64_t operator()(uint32_t v) const { return ask(state, v); }
  };

  template <typename Function, typename... Arguments>
  driver::CUresult Call(Function function, Arguments... arguments) {
    ++calls_;
    return function(arguments...);
  }
  driver::CUdeviceptr Plane(uint32_t p) const;
  uint64_t RestBytes(uint32_t p) const;
  driver::CUdeviceptr Place(uint32_t p, uint32_t v) const {
    return Plane(p) + v * shape_.plane_bytes;
  }
  driver::CUresult Reserve(const driver::EntryPoints& entry, uint64_t bytes,
                           Tensor* out);
  driver::CUresult BackPlane(const driver::EntryPoints& entry, uint32_t p,
                             driver::CUdeviceptr* end);
  driver::CUresult Permit(const driver::EntryPoints& entry,
                          driver::CUdeviceptr at, uint64_t bytes);
  driver::CUresult UnmapTensor(const driver::EntryPoints& entry,
                               uint32_t tensor);
  driver::CUresult UnmapPlane(const driver::EntryPoints& entry, uint32_t p);

  MapResult ActivateWith(const driver::EntryPoints& entry, DaemonLink* link,
                         const MemoryOf& memory);
  driver::CUresult ClearPlaces(const driver::EntryPoints& entry);
  MapResult FillPlaces(const driver::EntryPoints& entry, DaemonLink* link,
                       const MemoryOf& memory);
  driver::CUresult FillAbsences(const driver::EntryPoints& entry);
  void Demolish(const driver::EntryPoints& entry);

  template <typename Use>
  MapResult Import(const driver::EntryPoints& entry, DaemonLink* link,
                   uint32_t first_view, uint32_t end_view, Use use);
  driver::CUresult MapGranule(const driver::EntryPoints& entry, uint32_t v,
                              uint32_t k,
                              driver::CUmemGenericAllocationHandle granule);
  driver::CUresult PutSlab(const driver::EntryPoints& entry, uint32_t p,
                           uint32_t v);
  driver::CUresult PutScratch(const driver::EntryPoints& entry, uint32_t p,
                              uint32_t v);
  bool Restore(const driver::EntryPoints& entry, uint32_t planes, uint32_t v);

  ViewShape shape_;
  driver::CUcontext context_ = nullptr;
  driver::CUdevice device_ = 0;
  ViewScratch scratch_;
  void* block_ = nullptr;
  size_t block_bytes_ = 0;
  Tensor* tensors_ = nullptr;
  driver::CUmemGenericAllocationHandle* granules_ = nullptr;  // of one slab
  uint64_t* memory_ = nullptr;                                // by view index
  Backing* backing_ = nullptr;                                // the same
  uint32_t tensor_count_ = 0;
  // While the pool is put in place: planes whose scratch is gone, and how many
  // granules of which slab are mapped.
  uint32_t cleared_planes_ = 0;
  uint32_t being_mapped_ = 0;
  uint32_t granules_mapped_ = 0;
  uint64_t calls_ = 0;
};

}  // namespace fineserve::shim

#endif  // SHIM_MAP_VIEW_MAPPING_H_
