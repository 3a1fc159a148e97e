// A library whose constructor waits for a lock of the program that opens it.

extern "C" void stack_host_wait();

__attribute__((constructor)) static void Wait() { stack_host_wait(); }
