//go:build unix

package imageio

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPipeDoesNotBlock: opening a named pipe that nobody writes would wait for ever.
func TestPipeDoesNotBlock(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.jpg")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadHeaderFile(pipe); err == nil || !strings.Contains(err.Error(), "named pipe") {
		t.Errorf("error is %v", err)
	}
}
