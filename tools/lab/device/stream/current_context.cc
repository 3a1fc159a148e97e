#include "tools/lab/device/stream/current_context.h"

namespace fineserve::emucuda {
namespace {

constexpr int kStackDepth = 64;

// Plain data, because a program's static destructors may still call the driver
// after thread-local objects with destructors have been destroyed.
struct CurrentStack {
  Context* contexts[kStackDepth];
  int depth;
};
constinit thread_local CurrentStack t_current = {};

}  // namespace

Context* CurrentContext() {
  return t_current.depth == 0 ? nullptr
                              : t_current.contexts[t_current.depth - 1];
}

bool PushCurrentContext(Context* context) {
  if (t_current.depth == kStackDepth) return false;
  t_current.contexts[t_current.depth++] = context;
  return true;
}

Context* PopCurrentContext() {
  Context* top = CurrentContext();
  if (top != nullptr) --t_current.depth;
  return top;
}

}  // namespace fineserve::emucuda
