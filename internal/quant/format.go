package quant

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/fxamacker/cbor/v2"
	"github.com/zeebo/blake3"

	"longship/gpu/memory"
	"longship/gpu/tensor"
)

// A quantised file (.lsq) is
//
//	prefix   64 bytes, see below; the rest of the first 4 KiB is zero
//	units    each from a multiple of 4 KiB on, as memory.Unit says
//	header   CBOR, at the end, since a unit's checksum is known after its bytes
//
// and is the same on every platform. The prefix, little-endian:
//
//	 0  magic     8 bytes
//	 8  version   u32, then 4 zero bytes
//	16  offset    u64, of the header
//	24  length    u64, of the header
//	32  checksum  32 bytes, BLAKE3 of the header
const (
	magic      = "longshiq"
	version    = 1
	prefixSize = 64
	pageSize   = 4096
	maxHeader  = 64 << 20
	// Extension is what names of quantised files end with.
	Extension = ".lsq"
)

// ErrFormat is wrapped by errors of Open that say that the file is damaged, cut
// or of another version: it is to be made again.
var ErrFormat = errors.New("not a usable quantised file")

// header is what stands behind the units.
type header struct {
	Config []byte        `cbor:"config"`
	QType  string        `cbor:"qtype"`
	Source string        `cbor:"source"`
	Outer  memory.Unit   `cbor:"outer"`
	Units  []memory.Unit `cbor:"units"`
}

// appendPrefix returns the prefix of a file whose header, encoded, stands at offset.
func formatPrefix(offset int64, encoded []byte) []byte {
	p := make([]byte, prefixSize)
	copy(p, magic)
	binary.LittleEndian.PutUint32(p[8:], version)
	binary.LittleEndian.PutUint64(p[16:], uint64(offset))
	binary.LittleEndian.PutUint64(p[24:], uint64(len(encoded)))
	sum := blake3.Sum256(encoded)
	copy(p[32:], sum[:])
	return p
}

// Open opens a quantised file. It checks the header and that every unit is
// inside the file, and reads no unit: their checksums are verified when they are
// loaded, or by Verify. Close the set to close the file.
func Open(path string) (*memory.WeightSet, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	h, err := readHeader(f, info.Size())
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &memory.WeightSet{Config: h.Config, QType: h.QType, Source: h.Source, Outer: h.Outer, Units: h.Units, File: f, Stop: f.Close}, nil
}

func readHeader(r io.ReaderAt, size int64) (header, error) {
	var h header
	p := make([]byte, prefixSize)
	if _, err := r.ReadAt(p, 0); err != nil {
		return h, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if string(p[:8]) != magic {
		return h, fmt.Errorf("%w: it does not begin as one", ErrFormat)
	}
	if v := binary.LittleEndian.Uint32(p[8:]); v != version {
		return h, fmt.Errorf("%w: its version is %d, this program's %d", ErrFormat, v, version)
	}
	offset, length := binary.LittleEndian.Uint64(p[16:]), binary.LittleEndian.Uint64(p[24:])
	if length > maxHeader || offset > uint64(size) || offset+length != uint64(size) {
		return h, fmt.Errorf("%w: it is cut, or longer than it should be", ErrFormat)
	}
	encoded := make([]byte, length)
	if _, err := r.ReadAt(encoded, int64(offset)); err != nil {
		return h, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if blake3.Sum256(encoded) != [32]byte(p[32:]) {
		return h, fmt.Errorf("%w: the header's checksum does not match", ErrFormat)
	}
	if err := cbor.Unmarshal(encoded, &h); err != nil {
		return h, fmt.Errorf("%w: header: %w", ErrFormat, err)
	}
	return h, h.check(int64(offset))
}

// check sees to it that nothing in the header points outside: units lie one
// behind the other before end, entries inside their units.
func (h *header) check(end int64) error {
	at := int64(pageSize)
	for _, u := range append([]memory.Unit{h.Outer}, h.Units...) {
		if u.Off < at || u.Off%pageSize != 0 || u.Bytes < 0 || u.Bytes > end-u.Off || u.Bytes%tensor.Align != 0 {
			return fmt.Errorf("%w: unit %q at [%d, +%d) of %d", ErrFormat, u.Name, u.Off, u.Bytes, end)
		}
		at = u.Off + u.Bytes
		for _, e := range u.Entries {
			if err := checkEntry(e, u.Bytes); err != nil {
				return fmt.Errorf("%w: unit %q: %w", ErrFormat, u.Name, err)
			}
		}
	}
	return nil
}

func checkEntry(e memory.Entry, unit int64) error {
	switch e.DType {
	case tensor.E5M2, tensor.E4M3, tensor.I8, tensor.BF16, tensor.F32:
	default:
		return fmt.Errorf("%q is %s", e.Name, e.DType)
	}
	bytes := int64(e.DType.Size())
	for _, d := range e.Shape {
		if d < 1 || bytes > math.MaxInt64/int64(d) {
			return fmt.Errorf("%q has shape %v", e.Name, e.Shape)
		}
		bytes *= int64(d)
	}
	if len(e.Shape) == 0 || e.Off < 0 || e.Off%tensor.Align != 0 || bytes > unit-e.Off {
		return fmt.Errorf("%q is outside", e.Name)
	}
	hasScale := e.Scale != -1
	if hasScale != scaled(e.DType) {
		return fmt.Errorf("%q of %s has a scale offset of %d", e.Name, e.DType, e.Scale)
	}
	if hasScale && (e.Scale < 0 || e.Scale%tensor.Align != 0 || 4*int64(e.Shape[0]) > unit-e.Scale) {
		return fmt.Errorf("the scales of %q are outside", e.Name)
	}
	return nil
}
