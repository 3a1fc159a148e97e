#include "bench/fragmentation/pools.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "daemon/pool/geometry/slab_layout.h"
#include "kernels/driver/rounding.h"
#include "shim/view/block_allocator.h"

namespace fineserve::bench {
namespace {

uint64_t BlocksFor(const slab::Format& format, uint32_t tokens) {
  return DivideUp(tokens, format.block_tokens);
}

// Gives each model our own allocator, over slabs leased from one free list.
class SlabPool : public Pool {
 public:
  SlabPool(const slab::PoolGeometry& geometry, const std::vector<Model>& models)
      : geometry_(geometry), owner_(geometry.slab_count + 1) {
    for (uint32_t v = geometry.slab_count; v > 0; --v) free_.push_back(v);
    for (const Model& model : models) {
      layouts_.push_back(*slab::SlabLayout::Create(geometry, model.format()));
      auto blocks = std::make_unique<shim::BlockAllocator>();
      if (!blocks->Create(geometry.slab_count, layouts_.back().plane_bytes(),
                          model.format().page_bytes)) {
        abort();
      }
      blocks_.push_back(std::move(blocks));
    }
  }

  bool Cache(size_t m, uint32_t tokens, Held* held) override {
    const uint64_t count = BlocksFor(layouts_[m].format(), tokens);
    while (blocks_[m]->free_blocks() < count) {
      if (free_.empty() && !TakeEmptySlab(m)) return false;
      Lease(m);
    }
    std::vector<uint32_t> ids(count);
    if (!blocks_[m]->Allocate(static_cast<uint32_t>(count), ids.data())) {
      abort();
    }
    held->model = m;
    held->blocks.assign(ids.begin(), ids.end());
    return true;
  }

  void Drop(const Held& held) override {
    const std::vector<uint32_t> ids(held.blocks.begin(), held.blocks.end());
    const auto count = static_cast<uint32_t>(ids.size());
    if (blocks_[held.model]->Free(count, ids.data()) != count) abort();
  }

  Loss Lost() const override {
    Loss loss;
    for (uint32_t v = 1; v <= geometry_.slab_count; ++v) {
      if (!owner_[v]) continue;
      const slab::SlabLayout& layout = layouts_[*owner_[v]];
      const uint64_t usable = layout.Blocks(v).size();
      const uint64_t block_bytes = layout.format().block_bytes();
      const uint64_t used = blocks_[*owner_[v]]->UsedBlocks(v);
      loss.tail += geometry_.slab_bytes() - usable * block_bytes;
      loss.partial += (usable - used) * block_bytes;
    }
    return loss;
  }

 private:
  void Lease(size_t m) {
    const uint32_t v = free_.back();
    free_.pop_back();
    owner_[v] = m;
    if (!blocks_[m]->Link(v)) abort();
  }

  // Takes a slab back from another model. A slab without used blocks is the
  // cheapest.
  bool TakeEmptySlab(size_t asking) {
    for (uint32_t i = 0; i < geometry_.slab_count; ++i) {
      // Continues after the last slab that was found, since those before it
      // were in use.
      const uint32_t v = scanned_ = scanned_ % geometry_.slab_count + 1;
      if (!owner_[v] || owner_[v] == asking ||
          blocks_[*owner_[v]]->UsedBlocks(v) != 0) {
        continue;
      }
      shim::BlockAllocator& blocks = *blocks_[*owner_[v]];
      uint32_t drained;
      if (!blocks.Leave(v) || blocks.TakeDrained(1, &drained) != 1) abort();
      owner_[v].reset();
      free_.push_back(v);
      return true;
    }
    return false;
  }

  const slab::PoolGeometry geometry_;
  std::vector<slab::SlabLayout> layouts_;
  std::vector<std::unique_ptr<shim::BlockAllocator>> blocks_;
  std::vector<std::optional<size_t>> owner_;  // model, by view index
  std::vector<uint32_t> free_;
  uint32_t scanned_ = 0;  // view index
};

// Only counts blocks: if they have one size, their positions do not matter.
class CountedPool : public Pool {
 public:
  struct Part {
    uint64_t free_blocks;
    uint64_t block_tokens;
  };
  // `part_of`: by model.
  CountedPool(std::vector<Part> parts, std::vector<size_t> part_of,
              std::vector<uint64_t> tokens_per_block)
      : parts_(std::move(parts)),
        part_of_(std::move(part_of)),
        tokens_per_block_(std::move(tokens_per_block)) {}

  bool Cache(size_t m, uint32_t tokens, Held* held) override {
    const uint64_t count = DivideUp(tokens, tokens_per_block_[m]);
    uint64_t& free = parts_[part_of_[m]].free_blocks;
    if (free < count) return false;
    free -= count;
    held->model = m;
    held->blocks.assign(count, 0);
    return true;
  }
  void Drop(const Held& held) override {
    parts_[part_of_[held.model]].free_blocks += held.blocks.size();
  }

 private:
  std::vector<Part> parts_;
  std::vector<size_t> part_of_;
  std::vector<uint64_t> tokens_per_block_;
};

// Keeps holes by address; a block takes the lowest one that is large enough.
class FirstFitPool : public Pool {
 public:
  FirstFitPool(uint64_t bytes, const std::vector<Model>& models)
      : holes_({{0, bytes}}) {
    for (const Model& model : models) formats_.push_back(model.format());
    search_from_.resize(models.size());
  }

  bool Cache(size_t m, uint32_t tokens, Held* held) override {
    held->model = m;
    held->blocks.clear();
    const uint64_t bytes = formats_[m].block_bytes();
    for (uint64_t n = BlocksFor(formats_[m], tokens); n > 0; --n) {
      const auto hole =
          std::find_if(holes_.lower_bound(search_from_[m]), holes_.end(),
                       [=](const auto& h) { return h.second >= bytes; });
      if (hole == holes_.end()) {
        Drop(*held);
        return false;
      }
      const auto [begin, size] = *hole;
      search_from_[m] = begin;
      holes_.erase(hole);
      if (size > bytes) holes_[begin + bytes] = size - bytes;
      held->blocks.push_back(begin);
    }
    return true;
  }

  void Drop(const Held& held) override {
    for (const uint64_t begin : held.blocks) {
      Return(begin, formats_[held.model].block_bytes());
    }
  }

 private:
  void Return(uint64_t begin, uint64_t size) {
    auto next = holes_.lower_bound(begin);
    if (next != holes_.end() && next->first == begin + size) {
      size += next->second;
      next = holes_.erase(next);
    }
    if (next != holes_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == begin) {
        begin = before->first;
        size += before->second;
      }
    }
    holes_[begin] = size;
    for (uint64_t& from : search_from_) from = std::min(from, begin);
  }

  std::vector<slab::Format> formats_;
  std::map<uint64_t, uint64_t> holes_;
  // By model: no hole below this address is large enough.
  std::vector<uint64_t> search_from_;
};

// Keeps a separate slab pool for the models of each depth.
class SplitByDepthPool : public Pool {
 public:
  SplitByDepthPool(uint64_t bytes, const std::vector<Model>& models) {
    std::map<uint32_t, std::vector<size_t>> by_depth;
    for (size_t m = 0; m < models.size(); ++m) {
      by_depth[models[m].shape.layers].push_back(m);
    }
    part_of_.resize(models.size());
    within_.resize(models.size());
    for (const auto& [depth, members] : by_depth) {
      std::vector<Model> part;
      uint64_t lcm = 1;
      for (const size_t m : members) {
        part_of_[m] = parts_.size();
        within_[m] = part.size();
        part.push_back(models[m]);
        lcm = std::lcm(lcm, models[m].format().block_bytes());
      }
      const uint64_t slab_bytes = 2 * lcm;
      const uint64_t share = bytes / by_depth.size();
      // Their code has one tensor per layer; here only the slab's size matters.
      for (Model& model : part) model.shape.layout = slab::Layout::kPacked;
      parts_.push_back(MakeSlabPool(
          {slab_bytes, 1, static_cast<uint32_t>(share / slab_bytes)}, part));
    }
  }

  bool Cache(size_t m, uint32_t tokens, Held* held) override {
    if (!parts_[part_of_[m]]->Cache(within_[m], tokens, held)) return false;
    held->model = m;
    return true;
  }
  void Drop(const Held& held) override {
    Held inner = held;
    inner.model = within_[held.model];
    parts_[part_of_[held.model]]->Drop(inner);
  }

 private:
  std::vector<std::unique_ptr<Pool>> parts_;
  std::vector<size_t> part_of_, within_;
};

}  // namespace

std::unique_ptr<Pool> MakeSlabPool(const slab::PoolGeometry& geometry,
                                   const std::vector<Model>& models) {
  return std::make_unique<SlabPool>(geometry, models);
}

std::unique_ptr<Pool> MakePartitionedPool(uint64_t bytes,
                                          const std::vector<Model>& models) {
  std::vector<CountedPool::Part> parts;
  std::vector<size_t> part_of;
  std::vector<uint64_t> tokens;
  for (const Model& model : models) {
    const slab::Format format = model.format();
    part_of.push_back(parts.size());
    parts.push_back(
        {bytes / models.size() / format.block_bytes(), format.block_tokens});
    tokens.push_back(format.block_tokens);
  }
  return std::make_unique<CountedPool>(parts, part_of, tokens);
}

std::unique_ptr<Pool> MakeFixedBlockPool(uint64_t bytes,
                                         const std::vector<Model>& models) {
  uint64_t largest = 0;
  for (const Model& model : models) {
    largest = std::max(largest, model.format().block_bytes());
  }
  std::vector<uint64_t> tokens;
  for (const Model& model : models) {
    tokens.push_back(largest / model.token_bytes());
  }
  return std::make_unique<CountedPool>(
      std::vector<CountedPool::Part>{{bytes / largest, 0}},
      std::vector<size_t>(models.size(), 0), tokens);
}

std::unique_ptr<Pool> MakeFirstFitPool(uint64_t bytes,
                                       const std::vector<Model>& models) {
  return std::make_unique<FirstFitPool>(bytes, models);
}

std::unique_ptr<Pool> MakeSplitByDepthPool(uint64_t bytes,
                                           const std::vector<Model>& models) {
  return std::make_unique<SplitByDepthPool>(bytes, models);
}

}  // namespace fineserve::bench
