package safetensors

import (
	"os"

	"golang.org/x/sys/unix"
)

func dropBehind(f *os.File, off, n int64) {
	if n > 0 { // a length of 0 would mean the rest of the file
		_ = unix.Fadvise(int(f.Fd()), off, n, unix.FADV_DONTNEED)
	}
}
