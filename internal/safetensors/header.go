package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Info is what a header says of one tensor.
type Info struct {
	Name  string
	DType DType
	Shape []int
	Off   int64 // bytes from the start of the file
	Bytes int64
}

// Header is a checked header: every tensor lies inside the file, none overlaps
// another, and the bytes of each fit its type and shape.
type Header struct {
	Metadata map[string]string // nil without
	Tensors  []Info            // in file order
}

// entry is an Info before it is checked.
type entry struct {
	name       string
	dtype      DType
	shape      []uint64
	begin, end uint64
}

// ReadHeader reads and checks the header of a file of the given size. Duplicate
// names are refused, as the format says, although the reference implementation
// lets some of them pass. Memory is bounded by the header's size, that by the file's.
func ReadHeader(r io.ReaderAt, size int64) (*Header, error) {
	if size < 8 {
		return nil, fmt.Errorf("%w: %d bytes are too few for a header", ErrFormat, size)
	}
	var prefix [8]byte
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("read header length: %w", err)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > MaxHeader {
		return nil, fmt.Errorf("%w: header of %d bytes is longer than the %d allowed", ErrFormat, n, MaxHeader)
	}
	if int64(n) > size-8 {
		return nil, fmt.Errorf("%w: header of %d bytes in a file of %d", ErrFormat, n, size)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	meta, entries, err := parseHeader(text)
	if err != nil {
		return nil, err
	}
	tensors, err := place(entries, 8+int64(n), size)
	if err != nil {
		return nil, err
	}
	return &Header{Metadata: meta, Tensors: tensors}, nil
}

// place sorts the entries by their offsets and checks that they fill the file
// from start (where the data begins) to size without a hole.
func place(entries []entry, start, size int64) ([]Info, error) {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	tensors := make([]Info, len(entries))
	next := uint64(0)
	for i, e := range entries {
		if e.begin != next || e.end < e.begin {
			return nil, fmt.Errorf("%w: tensor %q: offsets [%d,%d] do not follow on %d", ErrFormat, e.name, e.begin, e.end, next)
		}
		n, err := e.bytes()
		if err != nil {
			return nil, fmt.Errorf("%w: tensor %q: %w", ErrFormat, e.name, err)
		}
		if n != e.end-e.begin {
			return nil, fmt.Errorf("%w: tensor %q: %s%v takes %d bytes, offsets give %d", ErrFormat, e.name, e.dtype, e.shape, n, e.end-e.begin)
		}
		if e.end > uint64(size-start) {
			return nil, fmt.Errorf("%w: tensor %q: the file is cut: it needs %d bytes more than the %d there are", ErrFormat, e.name, e.end-uint64(size-start), size)
		}
		tensors[i] = Info{Name: e.name, DType: e.dtype, Shape: ints(e.shape), Off: start + int64(e.begin), Bytes: int64(n)}
		next = e.end
	}
	if rest := uint64(size-start) - next; rest != 0 {
		return nil, fmt.Errorf("%w: %d bytes after the last tensor belong to none", ErrFormat, rest)
	}
	return tensors, nil
}

// bytes returns the bytes that e's type and shape take.
func (e entry) bytes() (uint64, error) {
	n := uint64(1)
	for _, d := range append(slices.Clone(e.shape), uint64(e.dtype.Bits())) {
		if d > math.MaxInt {
			return 0, fmt.Errorf("dimension %d of %v is too large", d, e.shape)
		}
		hi, lo := bits.Mul64(n, d)
		if hi != 0 {
			return 0, fmt.Errorf("size of %s%v overflows", e.dtype, e.shape)
		}
		n = lo
	}
	if n%8 != 0 {
		return 0, fmt.Errorf("%s%v is no whole number of bytes", e.dtype, e.shape)
	}
	return n / 8, nil
}

func ints(u []uint64) []int {
	s := make([]int, len(u))
	for i, v := range u {
		s[i] = int(v)
	}
	return s
}

// parseHeader reads the JSON object token by token, since decoding it into a
// map would keep the last of two equal names without a word.
func parseHeader(text []byte) (map[string]string, []entry, error) {
	if !utf8.Valid(text) {
		return nil, nil, fmt.Errorf("%w: header is not UTF-8", ErrFormat)
	}
	p := parser{dec: json.NewDecoder(bytes.NewReader(text))}
	p.dec.UseNumber()
	var meta map[string]string
	var entries []entry
	err := p.object(func(name string) error {
		if name == "__metadata__" {
			var err error
			meta, err = p.metadata()
			return err
		}
		e, err := p.entry(name)
		entries = append(entries, e)
		return err
	})
	if err == nil {
		if _, end := p.dec.Token(); end != io.EOF {
			err = fmt.Errorf("more follows the JSON object")
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: header: %w", ErrFormat, err)
	}
	return meta, entries, nil
}

type parser struct{ dec *json.Decoder }

// object reads an object and calls field at each value. A repeated key is an error.
func (p *parser) object(field func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.dec.More() {
		key, err := p.text()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("key %q appears twice", key)
		}
		seen[key] = true
		if err := field(key); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	return p.delim('}')
}

func (p *parser) metadata() (map[string]string, error) {
	meta := map[string]string{}
	err := p.object(func(key string) (err error) {
		meta[key], err = p.text()
		return err
	})
	return meta, err
}

// entry reads one tensor's object. Unknown fields are skipped.
func (p *parser) entry(name string) (entry, error) {
	e := entry{name: name}
	var found int
	err := p.object(func(key string) error {
		switch key {
		case "dtype":
			found++
			s, err := p.text()
			e.dtype = DType(s)
			if err == nil && e.dtype.Bits() == 0 {
				return fmt.Errorf("unknown element type %q", s)
			}
			return err
		case "shape":
			found++
			var err error
			e.shape, err = p.numbers()
			return err
		case "data_offsets":
			found++
			span, err := p.numbers()
			if err == nil && len(span) != 2 {
				return fmt.Errorf("%d numbers instead of begin and end", len(span))
			}
			if err == nil {
				e.begin, e.end = span[0], span[1]
			}
			return err
		}
		return p.skip()
	})
	if err == nil && found != 3 {
		err = fmt.Errorf("dtype, shape and data_offsets must all be there")
	}
	return e, err
}

// numbers reads an array of unsigned integers.
func (p *parser) numbers() ([]uint64, error) {
	if err := p.delim('['); err != nil {
		return nil, err
	}
	s := []uint64{}
	for p.dec.More() {
		t, err := p.dec.Token()
		if err != nil {
			return nil, err
		}
		n, ok := t.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%v is no number", t)
		}
		v, err := strconv.ParseUint(n.String(), 10, 64)
		if err != nil {
			return nil, err
		}
		s = append(s, v)
	}
	return s, p.delim(']')
}

func (p *parser) text() (string, error) {
	t, err := p.dec.Token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", fmt.Errorf("%v is no string", t)
	}
	return s, nil
}

func (p *parser) delim(want json.Delim) error {
	t, err := p.dec.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("%v where %v is expected", t, want)
	}
	return nil
}

// skip passes over one value.
func (p *parser) skip() error {
	for depth := 0; ; {
		t, err := p.dec.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}
