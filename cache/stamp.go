package cache

import (
	"io/fs"
	"time"
)

// stamp is what the file system says of a file without reading it. Two equal
// stamps mean equal bytes: writing changes mtime and ctime, setting mtime back
// changes ctime, and another file under the same name has another inode. Where
// a system has no ctime or inode they are 0.
type stamp struct {
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // ns since 1970
	CTime int64  `json:"ctime"` // ns since 1970
	Inode uint64 `json:"inode"`
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{Size: info.Size(), MTime: info.ModTime().UnixNano()}
	s.CTime, s.Inode = changeTime(info)
	return s
}

// settled says whether a later change would show in the stamp. A file that is
// written while the clock of its file system stands still can change without
// another stamp; those clocks tick every few milliseconds, or every two seconds
// where times are whole seconds. The ctime decides where there is one: every
// change sets it, whatever the mtime says.
func (s stamp) settled(now time.Time) bool {
	changed := s.CTime
	if changed == 0 {
		changed = s.MTime
	}
	tick := 50 * time.Millisecond
	if changed%int64(time.Second) == 0 {
		tick = 2 * time.Second
	}
	return now.UnixNano()-changed > int64(tick)
}
