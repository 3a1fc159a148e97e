// One function that calls back, in a frame of FRAME_BYTES: two libraries that
// are alike but for their unwind tables are made of it, and stripped.

extern "C" void frames_call(void (*callback)()) {
  volatile char locals[FRAME_BYTES];
  locals[0] = 1;
  callback();
  locals[FRAME_BYTES - 1] = locals[0];
}
