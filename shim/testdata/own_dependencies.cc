// A library with its own copies of liblzma.so.5 and libunwind.so.8 (each also
// built from this file), as in a conda environment.

#if defined(OWN_NAME)
extern "C" int OWN_NAME() { return 1; }
#else
extern "C" int own_lzma();
extern "C" int own_unwind();
extern "C" int own_dependencies() { return own_lzma() + own_unwind(); }
#endif
