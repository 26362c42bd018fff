// Package shim stands between gorgonia.org/cu and NVIDIA's driver, so that one
// binary runs on machines with and without a GPU.
//
// cu is linked against the driver (-lcuda) and its init function ends the
// process where cuInit fails. Here every function of the driver that cu calls
// is a trampoline, a jump through a pointer: before Load they all answer with
// an error, cuInit alone says yes; Load opens the real library and points them
// into it. lib/libcuda.a, an empty linker script, satisfies -lcuda.
//
// The package also has the few driver calls that cu lacks (page-locked memory,
// attributes of functions, names of errors) and opens other libraries by name.
// It knows nothing of contexts and threads: the calls obey the driver's rules.
package shim
