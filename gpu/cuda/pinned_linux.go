//go:build cuda

package cuda

import "golang.org/x/sys/unix"

// preferHugePages asks for pages of 2 MiB: fewer to clear and to lock. Where the
// system has none it goes on with small ones.
func preferHugePages(mem []byte) { _ = unix.Madvise(mem, unix.MADV_HUGEPAGE) }
