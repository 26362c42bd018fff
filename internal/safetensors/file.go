package safetensors

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// File is an open safetensors file with a checked header.
type File struct {
	*Header
	path  string
	f     *os.File
	index map[string]int // name -> place in Tensors
}

// Open opens a file and checks its header against its size.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	file, err := newFile(f, path)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

func newFile(f *os.File, path string) (*File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("no regular file")
	}
	h, err := ReadHeader(f, info.Size())
	if err != nil {
		return nil, err
	}
	file := &File{Header: h, path: path, f: f, index: make(map[string]int, len(h.Tensors))}
	for i, t := range h.Tensors {
		file.index[t.Name] = i
	}
	return file, nil
}

// Path returns the path that the file was opened by.
func (f *File) Path() string { return f.path }

// Names returns the names of the tensors, sorted.
func (f *File) Names() []string {
	names := make([]string, len(f.Tensors))
	for i, t := range f.Tensors {
		names[i] = t.Name
	}
	slices.Sort(names)
	return names
}

// Tensor returns the tensor of that name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, false
	}
	return Tensor{Info: f.Tensors[i], file: f}, true
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

// Tensor is a handle of one tensor in an open file. It is an io.ReaderAt over
// the tensor's bytes, little-endian and row-major.
type Tensor struct {
	Info
	file *File
}

// Path returns the path of the file that the tensor is in.
func (t Tensor) Path() string { return t.file.path }

// ReadAt reads from off bytes into the tensor. An error names file and tensor;
// a file that has become shorter since it was opened is io.ErrUnexpectedEOF.
func (t Tensor) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > t.Bytes {
		return 0, t.Errorf("read of [%d,%d) in %d bytes", off, off+int64(len(p)), t.Bytes)
	}
	n, err := t.file.f.ReadAt(p, t.Off+off)
	if errors.Is(err, io.EOF) && n == len(p) {
		err = nil
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the file was cut while in use: %w", io.ErrUnexpectedEOF)
	}
	if err != nil {
		err = t.Errorf("%w", err)
	}
	return n, err
}

// Read returns all bytes of the tensor.
func (t Tensor) Read() ([]byte, error) {
	p := make([]byte, t.Bytes)
	_, err := t.ReadAt(p, 0)
	return p, err
}

// Drop tells the system that the tensor will not be read again soon, so that
// its pages may leave the page cache before others. It is a hint and never fails.
func (t Tensor) Drop() { dropBehind(t.file.f, t.Off, t.Bytes) }

// Errorf makes an error that names the tensor and its file.
func (t Tensor) Errorf(format string, args ...any) error {
	return fmt.Errorf("%s: tensor %q: %w", t.file.path, t.Name, fmt.Errorf(format, args...))
}

// Len returns the number of elements.
func (t Info) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}
