#ifndef TESTS_CONFORMANCE_CONTROL_H_
#define TESTS_CONFORMANCE_CONTROL_H_

#include <dlfcn.h>

#include "tests/conformance/session.h"
#include "tools/lab/device/emucuda.h"

// Finds a control function of emucuda.h, which only the emulated driver has.
#define CONTROL(name)                  \
  reinterpret_cast<decltype(&::name)>( \
      dlsym(::fineserve::conformance::DriverLibrary(), #name))

#endif  // TESTS_CONFORMANCE_CONTROL_H_
