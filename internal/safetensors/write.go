package safetensors

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/zeebo/blake3"

	"longship/internal/dtype"
)

// Out is a tensor to be written.
type Out struct {
	Name  string
	DType DType
	Shape []int
	// Write writes the tensor's bytes, little-endian and row-major: as many as
	// type and shape say. It is called once, when it is the tensor's turn.
	Write func(w io.Writer) error
}

// OutF32 is a float32 tensor to be written from memory. data must stay as it is until then.
func OutF32(name string, data []float32, shape ...int) Out {
	return OutBytes(name, F32, dtype.Bytes(data), shape...)
}

// OutBytes is a tensor of any type to be written from its bytes.
func OutBytes(name string, d DType, data []byte, shape ...int) Out {
	return Out{Name: name, DType: d, Shape: shape, Write: func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}}
}

// Write writes a safetensors file to w, tensor by tensor, so that no second
// copy of them is made, and returns the BLAKE3 hash of all bytes written.
// Tensors are ordered as the reference implementation orders them: widest type
// first, then by name; the bytes depend on the arguments' values alone. Syncing
// and renaming the file is the caller's part.
func Write(w io.Writer, metadata map[string]string, tensors []Out) (sum [32]byte, err error) {
	tensors = slices.Clone(tensors)
	slices.SortFunc(tensors, func(a, b Out) int {
		return cmp.Or(cmp.Compare(b.DType.rank(), a.DType.rank()), cmp.Compare(a.Name, b.Name))
	})
	header, sizes, err := formatHeader(metadata, tensors)
	if err != nil {
		return sum, err
	}
	hash := blake3.New()
	buf := bufio.NewWriterSize(io.MultiWriter(w, hash), 1<<16)
	if _, err := buf.Write(header); err != nil {
		return sum, err
	}
	for i, t := range tensors {
		c := counter{w: buf}
		if err := t.Write(&c); err != nil {
			return sum, fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
		if c.n != sizes[i] {
			return sum, fmt.Errorf("write tensor %q: %d bytes for %s%v, which takes %d", t.Name, c.n, t.DType, t.Shape, sizes[i])
		}
	}
	if err := buf.Flush(); err != nil {
		return sum, err
	}
	return [32]byte(hash.Sum(nil)), nil
}

// formatHeader returns length and header, padded so that the data starts at a
// multiple of 8, and the bytes of each tensor.
func formatHeader(metadata map[string]string, tensors []Out) ([]byte, []uint64, error) {
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	b.WriteByte('{')
	if len(metadata) > 0 {
		b.WriteString(`"__metadata__":{`)
		for i, k := range slices.Sorted(maps.Keys(metadata)) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(quote(k))
			b.WriteByte(':')
			b.Write(quote(metadata[k]))
		}
		b.WriteByte('}')
	}
	sizes := make([]uint64, len(tensors))
	seen := map[string]bool{"__metadata__": true}
	offset := uint64(0)
	for i, t := range tensors {
		if seen[t.Name] {
			return nil, nil, fmt.Errorf("write safetensors: name %q is taken", t.Name)
		}
		seen[t.Name] = true
		n, err := entry{dtype: t.DType, shape: unsigned(t.Shape)}.bytes()
		if err != nil || t.DType.Bits() == 0 {
			return nil, nil, fmt.Errorf("write safetensors: tensor %q of %s%v: %w", t.Name, t.DType, t.Shape, cmp.Or(err, errNoType))
		}
		if b.Len() > 9 {
			b.WriteByte(',')
		}
		shape, _ := json.Marshal(append([]int{}, t.Shape...))
		fmt.Fprintf(&b, `%s:{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, quote(t.Name), t.DType, shape, offset, offset+n)
		sizes[i] = n
		offset += n
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len()-8 > MaxHeader {
		return nil, nil, fmt.Errorf("write safetensors: header of %d bytes is longer than the %d allowed", b.Len()-8, MaxHeader)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-8))
	return b.Bytes(), sizes, nil
}

var errNoType = fmt.Errorf("unknown element type")

// quote returns s as a JSON string, with <, > and & as they are.
func quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return bytes.TrimRight(b.Bytes(), "\n")
}

func unsigned(s []int) []uint64 {
	u := make([]uint64, len(s))
	for i, v := range s {
		u[i] = uint64(v) // a negative one becomes too large, and is refused as such
	}
	return u
}

type counter struct {
	w io.Writer
	n uint64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += uint64(n)
	return n, err
}
