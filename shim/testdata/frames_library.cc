// A function that calls back, in a stack frame of FRAME_BYTES. Two stripped
// libraries, which differ only in their unwind tables, are built from this
// file.

extern "C" void frames_call(void (*callback)()) {
  volatile char locals[FRAME_BYTES];
  locals[0] = 1;
  callback();
  locals[FRAME_BYTES - 1] = locals[0];
}
