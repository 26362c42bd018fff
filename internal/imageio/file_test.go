package imageio

import (
	"bytes"
	"errors"
	"image"
	"image/jpeg"
	"image/png"
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

// A file that ends too early says so, whatever its format's decoder calls it.
func TestTruncated(t *testing.T) {
	var whole bytes.Buffer
	picture := image.NewGray(image.Rect(0, 0, 64, 64))
	for i := range picture.Pix {
		picture.Pix[i] = byte(i * i)
	}
	for name, encode := range map[string]func() error{
		"JPEG": func() error { return jpeg.Encode(&whole, picture, nil) },
		"PNG":  func() error { return png.Encode(&whole, picture) },
	} {
		whole.Reset()
		if err := encode(); err != nil {
			t.Fatal(err)
		}
		cut := whole.Bytes()[:whole.Len()*2/3]
		_, err := Decode(bytes.NewReader(cut), int64(len(cut)), AlphaDrop)
		if !errors.Is(err, ErrTruncated) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
