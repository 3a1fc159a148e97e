#ifndef TOOLS_LAB_DEVICE_STREAM_CURRENT_CONTEXT_H_
#define TOOLS_LAB_DEVICE_STREAM_CURRENT_CONTEXT_H_

namespace fineserve::emucuda {

class Context;

// The calling thread's stack of current contexts. Entries may be dead.
Context* CurrentContext();  // null if the stack is empty
// Returns false if the stack is full.
bool PushCurrentContext(Context* context);
Context* PopCurrentContext();  // null if the stack was empty

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_STREAM_CURRENT_CONTEXT_H_
