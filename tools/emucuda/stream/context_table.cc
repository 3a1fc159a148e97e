#include "tools/emucuda/stream/context_table.h"

namespace fineserve::emucuda {

CUcontext ContextTable::Create(int device) {
  Context* context = new Context(device);  // never deleted: see Context
  const MutexLock lock(mutex_);
  known_.insert(context);
  return reinterpret_cast<CUcontext>(context);
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

CUcontext ContextTable::RetainPrimary(int device) {
  const MutexLock lock(mutex_);
  Primary& primary = primaries_[device];
  if (primary.context == nullptr) {
    primary.context = new Context(device);
    known_.insert(primary.context);
  } else if (primary.references == 0) {
    primary.context->Revive();
  }
  ++primary.references;
  return reinterpret_cast<CUcontext>(primary.context);
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
}

}  // namespace fineserve::emucuda
