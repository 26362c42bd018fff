//go:build cuda

package shim

/*
#cgo LDFLAGS: -L${SRCDIR}/lib -lcuda
#cgo linux LDFLAGS: -ldl
#include <stdlib.h>
#include "library.h"
#include "table.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// Load finds the driver, points the trampolines into it and initialises it.
// It returns the file that was loaded. Later calls return what the first did.
var Load = sync.OnceValues(load)

// candidates are the names of the driver's library: by the loader's path, then
// where WSL keeps it.
func candidates() []string {
	if runtime.GOOS == "windows" {
		return []string{"nvcuda.dll"}
	}
	return []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}
}

func load() (string, error) {
	var why []string
	for _, name := range candidates() {
		lib, err := Open(name)
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		for i := range C.longship_function_count() {
			if at := C.longship_symbol(lib.handle, C.longship_function_name(i)); at != nil {
				C.longship_bind(i, at)
			}
		}
		if code := initialise(); code != 0 {
			return "", fmt.Errorf("the NVIDIA driver (%s) does not start: %s", lib.Path(), ErrorName(code))
		}
		return lib.Path(), nil
	}
	return "", fmt.Errorf("no NVIDIA driver was found (%s)", strings.Join(why, "; "))
}

// Library is a shared library, open until the process ends.
type Library struct {
	name   string
	handle unsafe.Pointer
}

// Open opens a shared library by path, or by name along the loader's path.
func Open(name string) (*Library, error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var why *C.char
	handle := C.longship_open(cname, &why)
	if handle == nil {
		defer C.free(unsafe.Pointer(why))
		return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(C.GoString(why), name+": "))
	}
	return &Library{name: name, handle: handle}, nil
}

// Symbol returns the address of a function.
func (l *Library) Symbol(name string) (unsafe.Pointer, error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	at := C.longship_symbol(l.handle, cname)
	if at == nil {
		return nil, fmt.Errorf("%s has no function %s", l.name, name)
	}
	return at, nil
}

// Path returns the file that was opened, or the name where the system does not say.
func (l *Library) Path() string {
	for _, name := range []string{"cuInit", "cublasLtCreate"} {
		at, err := l.Symbol(name)
		if err != nil {
			continue
		}
		var path [1024]C.char
		C.longship_path(at, &path[0], C.int(len(path)))
		if p := C.GoString(&path[0]); p != "" {
			return p
		}
	}
	return l.name
}
