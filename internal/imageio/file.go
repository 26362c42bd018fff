package imageio

import (
	"fmt"
	"io/fs"
	"os"
)

// Open opens an image file for reading, with what stat says of it. Only regular
// files and links to them are opened: a named pipe would block for ever, and a
// folder or device holds no image.
func Open(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		if link, lerr := os.Readlink(path); lerr == nil {
			return nil, nil, fmt.Errorf("link to %s, which cannot be read: %w", link, err)
		}
		return nil, nil, err
	}
	if err := CheckRegular(info.Mode()); err != nil {
		return nil, nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	return f, info, nil
}

// CheckRegular returns an error that says what a file is when it is not a
// regular one.
func CheckRegular(m fs.FileMode) error {
	switch {
	case m.IsRegular():
		return nil
	case m.IsDir():
		return fmt.Errorf("is a folder, not a file")
	case m&fs.ModeNamedPipe != 0:
		return fmt.Errorf("is a named pipe, not a file")
	case m&fs.ModeSocket != 0:
		return fmt.Errorf("is a socket, not a file")
	case m&fs.ModeDevice != 0:
		return fmt.Errorf("is a device, not a file")
	}
	return fmt.Errorf("is not a regular file (%v)", m)
}

// ReadHeaderFile is ReadHeader of the file at path.
func ReadHeaderFile(path string) (Header, error) {
	f, info, err := Open(path)
	if err != nil {
		return Header{}, err
	}
	defer f.Close()
	return ReadHeader(f, info.Size())
}

// DecodeFile is Decode of the file at path.
func DecodeFile(path string, alpha Alpha) (*Image, error) {
	f, info, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Decode(f, info.Size(), alpha)
}
