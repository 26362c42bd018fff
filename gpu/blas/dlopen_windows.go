package blas

import "golang.org/x/sys/windows"

func openLibrary(name string) (uintptr, error) {
	h, err := windows.LoadLibrary(name)
	return uintptr(h), err
}
