#include "bench/micro/call_counter.h"

#include <dlfcn.h>

#include "bench/report/report.h"

namespace fineserve::bench {

CallCounter::CallCounter(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  count_ = reinterpret_cast<uint64_t (*)(const char*)>(
      dlsym(handle, "emucuda_call_count"));
  if (count_ == nullptr) Die("the driver has no emucuda_call_count");
  for (size_t i = 0; i < std::size(kNames); ++i) start_[i] = count_(kNames[i]);
}

uint64_t CallCounter::Of(const std::string& name) const {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return count_(kNames[i]) - start_[i];
  }
  Die("calls of " + name + " are not counted");
}

uint64_t CallCounter::All() const {
  uint64_t sum = 0;
  for (const char* name : kNames) sum += Of(name);
  return sum;
}

}  // namespace fineserve::bench
