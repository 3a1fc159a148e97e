#ifndef SHIM_MAP_VIEW_MAPPING_H_
#define SHIM_MAP_VIEW_MAPPING_H_

#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/slab_table.h"
#include "kernels/driver/entry_points.h"
#include "shim/link/daemon_link.h"
#include "shim/map/granules.h"
#include "shim/map/range_table.h"
#include "shim/map/view_scratch.h"

namespace fineserve::shim {

// The shape of a view's tensors. view_format.h computes and checks it.
struct ViewShape {
  abi::ViewMode mode = abi::ViewMode::kNone;
  uint32_t planes = 0;
  uint32_t planes_per_allocation = 0;
  uint64_t page_bytes = 0;
  uint64_t blocks = 0;       // how many each plane has room for
  uint64_t plane_bytes = 0;  // a slab's share of each plane
  uint64_t granule_bytes = 0;
  uint32_t granules_per_plane = 0;  // of a slab
  uint32_t granules_per_slab = 0;
  uint32_t slabs = 0;  // view indices 1 … slabs are wholly in every plane
  uint64_t granularity = 0;  // the driver's
  uint64_t epoch = 0;

  uint64_t stride() const { return blocks * page_bytes; }
  uint64_t tensor_bytes() const { return planes_per_allocation * stride(); }
  uint32_t tensors() const { return planes / planes_per_allocation; }
  // Number of a slab's granules that planes use; the others are tail waste.
  uint32_t used_granules() const { return planes * granules_per_plane; }
};

// An engine's KV tensors as a view of the pool (design note 0000, Memory, 2 to
// 5):
//
//   plane p  | index 0 | index 1 | … | index n | rest |   index: plane_bytes
//   at first |                scratch                 |
//   then     | scratch | slab 0  | … | slab n-1| scratch |   mode view
//            | scratch | leased slabs, scratch | scratch |   guarded
//            | scratch | leased slabs, nothing | scratch |   strict
//
// Slab v - 1 gives its granules [p × granules_per_plane, …) to plane p.
// Addresses never change. An engine that uses leased blocks only never touches
// unmapped addresses.
//
// Failures: if the daemon dies, granules that were imported stay; an import
// under way fails and is undone. If this process dies, its mappings go with it,
// and the daemon waits for the driver before it leases the slabs again. A
// driver call that fails is undone. If undoing fails too, the slab is broken:
// it is neither used nor returned, because it may still be mapped.
//
// Confined to one thread at a time. Any context may be current, because the
// tensors' own is remembered. Trivially destroyed: Close frees the memory.
class ViewMapping {
 public:
  constexpr ViewMapping() = default;

  // Starts a view without tensors. False if memory is short.
  bool Open(const ViewShape& shape);
  // Frees the memory, after UnmapAll and the removal of every tensor.
  void Close();

  const ViewShape& shape() const { return shape_; }
  driver::CUcontext context() const { return context_; }

  // True if an allocation of `bytes` is a tensor: its size is the sum of its
  // planes, or that sum rounded up by an allocator.
  bool Fits(uint64_t bytes) const;
  // Puts a tensor on scratch, in the current context. kWrongSize if it is not a
  // tensor's size or all tensors exist. On an error everything has been undone.
  MapResult AddTensor(const driver::EntryPoints& entry, uint64_t bytes,
                      Redirection* out);
  // Unmaps the rest of the tensor and frees its addresses. The caller has
  // waited for the context.
  driver::CUresult RemoveTensor(const driver::EntryPoints& entry,
                                driver::CUdeviceptr base);
  bool complete() const { return tensor_count_ == shape_.tensors(); }
  bool empty() const { return tensor_count_ == 0; }

  // Maps the pool in place of the scratch, as the mode requires. The caller has
  // waited for the context. `memory(v)` is the number of a slab's memory; a
  // slab without memory (0) keeps its scratch. After an error no slab of the
  // pool is mapped, except broken ones, and the view must not be used.
  template <typename Memory>
  MapResult Activate(const driver::EntryPoints& entry, DaemonLink* link,
                     Memory memory) {
    return ActivateWith(entry, link,
                        {&memory, [](const void* m, uint32_t v) -> uint64_t {
                           return (*static_cast<const Memory*>(m))(v);
                         }});
  }

  // True if a slab of the pool is mapped at this index.
  bool resident(uint32_t v) const { return backing_[v] == Backing::kPool; }
  bool broken(uint32_t v) const { return backing_[v] == Backing::kBroken; }
  // The number of the memory that is mapped there; 0 if none is.
  uint64_t memory(uint32_t v) const { return resident(v) ? memory_[v] : 0; }
  // Maps a slab's granules in its place, and unmaps them again. No work of the
  // context may touch that place during the call. `memory` is its number in the
  // slab table, read before the call.
  MapResult SwapIn(const driver::EntryPoints& entry, DaemonLink* link,
                   uint32_t v, uint64_t memory);
  driver::CUresult SwapOut(const driver::EntryPoints& entry, uint32_t v);

  // Unmaps all tensors; their addresses stay reserved. The caller has waited
  // for the context. After an error something may still be mapped, so the
  // leases must be kept.
  driver::CUresult UnmapAll(const driver::EntryPoints& entry);
  // Releases the scratch of a view that has nothing mapped; afterwards the view
  // holds no device memory.
  void ReleaseScratch(const driver::EntryPoints& entry) {
    scratch_.Release(entry, &calls_);
  }
  // Puts all tensors on new scratch, at the same addresses, after UnmapAll, as
  // AddTensor did; the pool's epoch is now `epoch`. The view's context must be
  // current. After an error nothing is mapped.
  driver::CUresult MapAgain(const driver::EntryPoints& entry, uint64_t epoch);
  // True if some slab is neither mapped nor unmapped.
  bool has_broken() const;

  // Number of driver calls so far.
  uint64_t calls() const { return calls_; }
  void CountCalls(uint64_t calls) { calls_ += calls; }

 private:
  enum class Backing : uint8_t { kScratch, kPool, kNothing, kBroken };
  struct Tensor {
    driver::CUdeviceptr base;  // 0 if there is no tensor
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
  void OpenScratch(const driver::EntryPoints& entry);
  driver::CUresult BackTensor(const driver::EntryPoints& entry, Tensor* tensor);
  driver::CUresult BackPlane(const driver::EntryPoints& entry, uint32_t p,
                             driver::CUdeviceptr* end);
  // Permit and Unmap cover any number of mappings. A driver may refuse a range
  // in which one handle is mapped many times; then they make one call for each
  // mapping.
  driver::CUresult Permit(const driver::EntryPoints& entry,
                          driver::CUdeviceptr at, uint64_t bytes);
  driver::CUresult Unmap(const driver::EntryPoints& entry,
                         driver::CUdeviceptr at, uint64_t bytes);
  template <typename CallOn>
  driver::CUresult InPieces(driver::CUdeviceptr at, uint64_t bytes,
                            CallOn call_on);
  driver::CUresult UnmapTensor(const driver::EntryPoints& entry,
                               uint32_t tensor);
  driver::CUresult UnmapPlane(const driver::EntryPoints& entry, uint32_t p);

  MapResult ActivateWith(const driver::EntryPoints& entry, DaemonLink* link,
                         const MemoryOf& memory);
  driver::CUresult ClearPlaces(const driver::EntryPoints& entry);
  MapResult FillPlaces(const driver::EntryPoints& entry, DaemonLink* link,
                       const MemoryOf& memory);
  MapResult FillRun(const driver::EntryPoints& entry, DaemonLink* link,
                    const MemoryOf& memory, uint32_t v, uint32_t* end);
  bool LetGoOfPart(const driver::EntryPoints& entry);
  bool UnmapGranules(const driver::EntryPoints& entry, uint32_t v,
                     uint32_t granules);
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
  size_t block_bytes_ = 0;
  Tensor* tensors_ = nullptr;  // the block of memory begins with them
  driver::CUmemGenericAllocationHandle* granules_ = nullptr;  // of one slab
  uint64_t* memory_ = nullptr;                                // by view index
  Backing* backing_ = nullptr;                                // by view index
  uint32_t tensor_count_ = 0;
  // While the pool is being mapped: how many planes have lost their scratch,
  // and how many granules of which slab are mapped.
  uint32_t cleared_planes_ = 0;
  uint32_t being_mapped_ = 0;
  uint32_t granules_mapped_ = 0;
  uint64_t calls_ = 0;
  bool pieces_said_ = false;
};

}  // namespace fineserve::shim

#endif  // SHIM_MAP_VIEW_MAPPING_H_
