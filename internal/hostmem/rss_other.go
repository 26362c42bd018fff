//go:build !linux

package hostmem

func rssAnon() (int64, bool) { return 0, false }
