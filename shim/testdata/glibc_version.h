#ifndef SHIM_TESTDATA_GLIBC_VERSION_H_
#define SHIM_TESTDATA_GLIBC_VERSION_H_

// The version that dlsym has had since glibc first supported this processor.
#if defined(__x86_64__)
#define FINESERVE_FIRST_GLIBC "GLIBC_2.2.5"
#else
#define FINESERVE_FIRST_GLIBC "GLIBC_2.17"
#endif

#endif  // SHIM_TESTDATA_GLIBC_VERSION_H_
