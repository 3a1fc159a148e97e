// One function that calls back, in a frame of FRAME_BYTES. Two stripped
// libraries are built from it that differ only in their unwind tables.

extern "C" void frames_call(void (*callback)()) {
  volatile char locals[FRAME_BYTES];
  locals[0] = 1;
  callback();
  locals[FRAME_BYTES - 1] = locals[0];
}
