#include "tools/lab/device/stream/context_table.h"

namespace fineserve::emucuda {

CUresult ContextTable::Create(int device, CUcontext* context) {
  Upkeep upkeep;
  if (const CUresult result = on_begin_(device, &upkeep)) return result;
  Context* created = new Context(device);  // never deleted: see Context
  const MutexLock lock(mutex_);
  known_.insert(created);
  upkeep_[created] = {std::move(upkeep), nullptr};
  *context = reinterpret_cast<CUcontext>(created);
  return CUDA_SUCCESS;
}

CUresult ContextTable::Grow(const Context& context,
                            const std::function<CUresult(Upkeep*)>& take) {
  const MutexLock lock(mutex_);
  const auto kept = upkeep_.find(&context);
  const bool grown = kept == upkeep_.end() || kept->second.growth != nullptr;
  return grown ? CUDA_SUCCESS : take(&kept->second.growth);
}

Context* ContextTable::Find(CUcontext handle) const {
  Context* context = reinterpret_cast<Context*>(handle);
  const MutexLock lock(mutex_);
  return known_.contains(context) ? context : nullptr;
}

CUresult ContextTable::Destroy(CUcontext handle) {
  Context* context = Find(handle);
  if (context == nullptr || !context->alive()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  {
    const MutexLock lock(mutex_);
    if (primaries_[context->device()].context == context) {
      return CUDA_ERROR_INVALID_CONTEXT;
    }
  }
  End(context);
  return CUDA_SUCCESS;
}

CUresult ContextTable::RetainPrimary(int device, CUcontext* context) {
  const MutexLock lock(mutex_);
  Primary& primary = primaries_[device];
  if (primary.references == 0) {
    Upkeep upkeep;
    if (const CUresult result = on_begin_(device, &upkeep)) return result;
    if (primary.context == nullptr) {
      primary.context = new Context(device);
      known_.insert(primary.context);
    } else {
      primary.context->Revive();
    }
    upkeep_[primary.context] = {std::move(upkeep), nullptr};
  }
  ++primary.references;
  *context = reinterpret_cast<CUcontext>(primary.context);
  return CUDA_SUCCESS;
}

CUresult ContextTable::ReleasePrimary(int device) {
  Context* last = nullptr;
  {
    const MutexLock lock(mutex_);
    Primary& primary = primaries_[device];
    if (primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary.references == 0) last = primary.context;
  }
  if (last != nullptr) End(last);
  return CUDA_SUCCESS;
}

void ContextTable::ResetPrimary(int device) {
  Context* context = nullptr;
  {
    const MutexLock lock(mutex_);
    Primary& primary = primaries_[device];
    if (primary.references > 0) context = primary.context;
    primary.references = 0;
  }
  if (context != nullptr) End(context);
}

bool ContextTable::PrimaryActive(int device) const {
  const MutexLock lock(mutex_);
  return primaries_[device].references > 0;
}

void ContextTable::End(Context* context) {
  context->Destroy();
  on_end_(*context);
  Kept last;  // dropped after the lock is released
  const MutexLock lock(mutex_);
  last = std::move(upkeep_[context]);
  upkeep_.erase(context);
}

}  // namespace fineserve::emucuda
