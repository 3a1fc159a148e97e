#ifndef SHIM_HOST_ORIGINAL_H_
#define SHIM_HOST_ORIGINAL_H_

#include "kernels/driver/entry_points.h"

namespace fineserve::shim {

// The program's original call, ready to be made to the driver. Refers to a
// lambda in the hook and must not outlive it.
class Original {
 public:
  template <typename Call>
  explicit Original(const Call& call)
      : call_(&call),
        make_([](const void* c, const driver::EntryPoints& entry) {
          return (*static_cast<const Call*>(c))(entry);
        }) {}

  driver::CUresult operator()(const driver::EntryPoints& entry) const {
    return make_(call_, entry);
  }

 private:
  const void* call_;
  driver::CUresult (*make_)(const void*, const driver::EntryPoints&);
};

// Calls an entry point that may be null because the driver is older.
template <typename Function, typename... Arguments>
driver::CUresult CallOptional(Function function, Arguments... arguments) {
  return function == nullptr ? driver::CUDA_ERROR_NOT_SUPPORTED
                             : function(arguments...);
}

// The call of such an entry point, for Original:
//   const auto call = CallOf<&EntryPoints::cuMemRelease>(handle);
template <auto Entry, typename... Arguments>
auto CallOf(Arguments... arguments) {
  return [=](const driver::EntryPoints& entry) {
    return CallOptional(entry.*Entry, arguments...);
  };
}

}  // namespace fineserve::shim

#endif  // SHIM_HOST_ORIGINAL_H_
