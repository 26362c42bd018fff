//go:build unix

package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"github.com/ebitengine/purego"
)

// nvrtc is NVIDIA's compiler from CUDA C++ to PTX.
type nvrtc struct {
	version     func(major, minor *int32) int32
	create      func(prog *uintptr, src, name *byte, n int32, headers, names unsafe.Pointer) int32
	compileProg func(prog uintptr, n int32, options unsafe.Pointer) int32
	logSize     func(prog uintptr, size *uintptr) int32
	log         func(prog uintptr, to *byte) int32
	ptxSize     func(prog uintptr, size *uintptr) int32
	ptx         func(prog uintptr, to *byte) int32
	destroy     func(prog *uintptr) int32
	errorText   func(code int32) string
}

// openNVRTC loads the library and demands its version.
func openNVRTC() (*nvrtc, error) {
	name := os.Getenv("LONGSHIP_NVRTC")
	if name == "" {
		name = "libnvrtc.so.11.2"
	}
	lib, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("NVRTC 11.8 is needed (Debian: libnvrtc11.2 of non-free; LONGSHIP_NVRTC names another file): %w", err)
	}
	n := &nvrtc{}
	for fn, symbol := range map[any]string{
		&n.version: "nvrtcVersion", &n.create: "nvrtcCreateProgram", &n.compileProg: "nvrtcCompileProgram",
		&n.logSize: "nvrtcGetProgramLogSize", &n.log: "nvrtcGetProgramLog", &n.ptxSize: "nvrtcGetPTXSize",
		&n.ptx: "nvrtcGetPTX", &n.destroy: "nvrtcDestroyProgram", &n.errorText: "nvrtcGetErrorString",
	} {
		purego.RegisterLibFunc(fn, lib, symbol)
	}
	var major, minor int32
	if err := n.error(n.version(&major, &minor)); err != nil {
		return nil, err
	}
	if major != 11 || minor != 8 {
		return nil, fmt.Errorf("%s is NVRTC %d.%d, want 11.8: the PTX of later ones asks for later drivers", name, major, minor)
	}
	return n, nil
}

func (n *nvrtc) error(code int32) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("nvrtc: %s", n.errorText(code))
}

// compile returns the PTX of a source; its error has the compiler's messages.
func (n *nvrtc) compile(name, src string, headers map[string]string, options []string) (string, error) {
	var texts, names []*byte
	for _, h := range sortedKeys(headers) {
		texts, names = append(texts, cString(headers[h])), append(names, cString(h))
	}
	var args []*byte
	for _, o := range options {
		args = append(args, cString(o))
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, list := range [][]*byte{texts, names, args} {
		for _, p := range list {
			pin.Pin(p)
		}
	}
	var prog uintptr
	if err := n.error(n.create(&prog, cString(src), cString(name), int32(len(texts)), array(texts), array(names))); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	defer n.destroy(&prog)
	failed := n.error(n.compileProg(prog, int32(len(args)), array(args)))
	log, err := n.read(prog, n.logSize, n.log)
	if err != nil {
		return "", err
	}
	if failed != nil {
		return "", fmt.Errorf("%s: %w\n%s", name, failed, log)
	}
	if log != "" {
		fmt.Fprintf(os.Stderr, "%s\n", log)
	}
	return n.read(prog, n.ptxSize, n.ptx)
}

// read fetches a text whose size, with the terminating zero, is asked for first.
func (n *nvrtc) read(prog uintptr, size func(uintptr, *uintptr) int32, get func(uintptr, *byte) int32) (string, error) {
	var bytes uintptr
	if err := n.error(size(prog, &bytes)); err != nil || bytes <= 1 {
		return "", err
	}
	text := make([]byte, bytes)
	if err := n.error(get(prog, &text[0])); err != nil {
		return "", err
	}
	return string(text[:bytes-1]), nil
}

func cString(s string) *byte { return &append([]byte(s), 0)[0] }

func array(p []*byte) unsafe.Pointer {
	if len(p) == 0 {
		return nil
	}
	return unsafe.Pointer(&p[0])
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
