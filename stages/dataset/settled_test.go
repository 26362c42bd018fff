package dataset

import (
	"io/fs"
	"testing"
	"time"
)

// waitSettled waits until files are old enough to be remembered by their times.
func waitSettled(t *testing.T, files []fs.FileInfo) {
	t.Helper()
	for _, f := range files {
		if wait := 60*time.Millisecond - time.Since(f.ModTime()); wait > 0 {
			time.Sleep(wait)
		}
	}
}
