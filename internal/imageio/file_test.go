package imageio

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(path("folder.jpg"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, _, err := Open(path("folder.jpg"))
	if err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("a folder: %v", err)
	}
	if err := os.Symlink("gone.jpg", path("link.jpg")); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	_, _, err = Open(path("link.jpg"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "link to gone.jpg") {
		t.Errorf("a dangling link: %v", err)
	}
	if err := os.WriteFile(path("gone.jpg"), []byte("here again"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, info, err := Open(path("link.jpg"))
	if err != nil || info.Size() != 10 {
		t.Fatalf("a link to a file: %v", err)
	}
	f.Close()
}

func TestCheckRegular(t *testing.T) {
	for mode, says := range map[fs.FileMode]string{
		0o644: "", fs.ModeDir: "folder", fs.ModeNamedPipe: "named pipe", fs.ModeSocket: "socket",
		fs.ModeDevice: "device", fs.ModeDevice | fs.ModeCharDevice: "device", fs.ModeIrregular: "not a regular file",
	} {
		err := CheckRegular(mode)
		if (says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", mode, err)
		}
	}
}
