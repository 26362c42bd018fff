package cache

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Every value is framed: eight bytes of checksum, then the body. The checksum
// is xxHash64 of the body, bound to the entry's key so that a pointer that
// leads to another entry's bytes is found too.
//
// The body of a tensor is a header (kind, dtype, shape) and the payload; the
// body of every other record is the record.
const sumSize = 8

var errFrame = errors.New("checksum does not match")

// checksum returns the checksum of an entry's body.
func checksum(key, body []byte) uint64 { return xxhash.Sum64(body) ^ xxhash.Sum64(key) }

// seal fills in the checksum of a frame whose body is in place.
func sealFrame(key, frame []byte) {
	binary.LittleEndian.PutUint64(frame, checksum(key, frame[sumSize:]))
}

// openFrame checks a frame and returns its body.
func openFrame(key, frame []byte) ([]byte, error) {
	if len(frame) < sumSize || binary.LittleEndian.Uint64(frame) != checksum(key, frame[sumSize:]) {
		return nil, errFrame
	}
	return frame[sumSize:], nil
}

// frameRecord frames a small record.
func frameRecord(key, data []byte) []byte {
	frame := make([]byte, sumSize, sumSize+len(data))
	frame = append(frame, data...)
	sealFrame(key, frame)
	return frame
}

// frameTensor frames a tensor.
func frameTensor(key []byte, ref Ref, data []byte) []byte {
	head := appendHeader(nil, ref)
	frame := make([]byte, sumSize, sumSize+len(head)+len(data))
	frame = append(frame, head...)
	frame = append(frame, data...)
	sealFrame(key, frame)
	return frame
}

// appendHeader writes kind, dtype and shape: texts and the list of sides are
// preceded by their length, all numbers are uvarints.
func appendHeader(p []byte, ref Ref) []byte {
	for _, s := range []string{ref.Kind, ref.DType} {
		p = binary.AppendUvarint(p, uint64(len(s)))
		p = append(p, s...)
	}
	p = binary.AppendUvarint(p, uint64(len(ref.Shape)))
	for _, n := range ref.Shape {
		p = binary.AppendUvarint(p, uint64(n))
	}
	return p
}

// parseHeader reads a tensor's header and returns the payload behind it.
func parseHeader(body []byte) (ref Ref, payload []byte, err error) {
	r := reader{p: body}
	ref.Kind = string(r.bytes())
	ref.DType = string(r.bytes())
	rank := r.number()
	for i := uint64(0); i < rank && !r.bad; i++ {
		ref.Shape = append(ref.Shape, int(r.number()))
	}
	if r.bad {
		return Ref{}, nil, fmt.Errorf("tensor header is cut off")
	}
	return ref, r.p, nil
}

// reader takes uvarint-coded fields off a record. After a fault it returns
// zeros and bad is set.
type reader struct {
	p   []byte
	bad bool
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.p)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.p = r.p[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.number()
	if r.bad || n > uint64(len(r.p)) {
		r.bad = true
		return nil
	}
	b := r.p[:n]
	r.p = r.p[n:]
	return b
}

func (r *reader) key() (k Key) {
	if len(r.p) < len(k) {
		r.bad = true
		return k
	}
	copy(k[:], r.p)
	r.p = r.p[len(k):]
	return k
}
