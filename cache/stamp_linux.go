package cache

import (
	"io/fs"
	"syscall"
)

// changeTime returns when the inode was last changed, in ns, and its number.
func changeTime(info fs.FileInfo) (ctime int64, inode uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return st.Ctim.Nano(), st.Ino
}
