// Package memory decides where bytes are and when they move: the frozen
// weights of a model as units in one file, the ring that streams them past the
// device, and the plan of what stays resident. It never decides how anything
// is computed, so residency cannot change a result.
package memory

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/blake3"

	"longship/gpu"
	"longship/gpu/tensor"
)

// ErrDamaged is returned where a unit's bytes do not have the checksum they
// were written with. The quantised file must be deleted; the next start makes it again.
var ErrDamaged = errors.New("damaged: its checksum does not match")

// Entry is one tensor of a unit. Name is the canonical (BFL) name of the
// weight, "double_blocks.0.img_attn.qkv.weight".
type Entry struct {
	Name  string       `cbor:"name"`
	DType tensor.DType `cbor:"dtype"`
	Shape []int        `cbor:"shape"`
	Off   int64        `cbor:"off"`   // bytes into the unit, a multiple of tensor.Align
	Scale int64        `cbor:"scale"` // offset of the row scales, f32 [Shape[0]]; -1 without
}

// Unit is what is copied in one piece: one stream of a double block, one single
// block, or the outer unit (everything outside the blocks; Block is -1).
type Unit struct {
	Name    string   `cbor:"name"`  // "double_blocks.0.img"
	Block   int      `cbor:"block"` // the block it belongs to, in forward order; -1 for the outer unit
	Bytes   int64    `cbor:"bytes"` // a multiple of tensor.Align
	Entries []Entry  `cbor:"entries"`
	Off     int64    `cbor:"off"` // where the unit starts in the file
	Sum     [32]byte `cbor:"sum"` // BLAKE3 of its bytes
}

// WeightSet is a model's frozen weights as units in a quantised file. Whoever
// receives it owns it and closes it.
type WeightSet struct {
	Config []byte // the model's config.json, as flux2.ParseConfig reads it
	QType  string // bf8, float8, int8, bf16
	Source string // hex identity of the source weights, however they are quantised
	Outer  Unit
	Units  []Unit // in forward order; units of one block are neighbours

	File io.ReaderAt
	Stop func() error // closes File

	// Fill makes the bytes of a unit that is in no file, a text tower's layer
	// quantised as it is loaded. Where it is set File and the checksums are not
	// used. It must be safe for concurrent use and set every byte of dst.
	// Without it and without a File the set is a layout: what reads it gets no
	// bytes and leaves its memory as it is.
	Fill func(ctx context.Context, u Unit, dst []byte) error
}

// empty says whether the set is a layout without weights.
func (w *WeightSet) empty() bool { return w.File == nil && w.Fill == nil }

// Blocks returns the number of blocks.
func (w *WeightSet) Blocks() int {
	n := 0
	for _, u := range w.Units {
		n = max(n, u.Block+1)
	}
	return n
}

// Load reads a unit in pieces, in order, and gives each to sink, which must
// not keep it. The unit's checksum is verified before Load returns nil. Safe
// for concurrent use.
func (w *WeightSet) Load(ctx context.Context, u Unit, sink func(off int64, piece []byte) error) error {
	if w.empty() {
		return nil
	}
	if w.Fill != nil {
		return w.fillAndSink(ctx, u, sink)
	}
	buf := make([]byte, min(u.Bytes, loadPiece))
	return w.load(ctx, u, func(off int64) []byte { return buf[:min(loadPiece, u.Bytes-off)] }, sink)
}

// Read fills dst (u.Bytes long) with the unit's bytes and verifies its
// checksum. Safe for concurrent use.
func (w *WeightSet) Read(ctx context.Context, u Unit, dst []byte) error {
	if w.empty() {
		return nil
	}
	if int64(len(dst)) != u.Bytes {
		return fmt.Errorf("read unit %s: buffer of %d bytes for %d", u.Name, len(dst), u.Bytes)
	}
	if w.Fill != nil {
		return w.Fill(ctx, u, dst)
	}
	return w.load(ctx, u, func(off int64) []byte { return dst[off:min(off+loadPiece, u.Bytes)] },
		func(int64, []byte) error { return nil })
}

const loadPiece = 16 << 20

func (w *WeightSet) fillAndSink(ctx context.Context, u Unit, sink func(off int64, piece []byte) error) error {
	whole := make([]byte, u.Bytes)
	if err := w.Fill(ctx, u, whole); err != nil {
		return err
	}
	for off := int64(0); off < u.Bytes; off += loadPiece {
		if err := sink(off, whole[off:min(off+loadPiece, u.Bytes)]); err != nil {
			return err
		}
	}
	return nil
}

func (w *WeightSet) load(ctx context.Context, u Unit, place func(off int64) []byte, sink func(off int64, piece []byte) error) error {
	sum := blake3.New()
	for off := int64(0); off < u.Bytes; off += loadPiece {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece := place(off)
		if _, err := w.File.ReadAt(piece, u.Off+off); err != nil {
			return fmt.Errorf("read unit %s of the quantised file: %w", u.Name, err)
		}
		if _, err := sum.Write(piece); err != nil {
			return err
		}
		if err := sink(off, piece); err != nil {
			return err
		}
	}
	if [32]byte(sum.Sum(nil)) != u.Sum {
		return fmt.Errorf("unit %s of the quantised file: %w", u.Name, ErrDamaged)
	}
	return nil
}

// Close closes the file. Calling it twice is allowed.
func (w *WeightSet) Close() error {
	if w.Stop == nil {
		return nil
	}
	stop := w.Stop
	w.Stop = nil
	return stop()
}

// Params are weights by canonical name, valid as long as the unit they are in is held.
type Params map[string]tensor.Weight

// Bind adds to p the weights of a unit that lies at off in buf.
func (p Params) Bind(u Unit, buf gpu.Buffer, off int64) {
	for _, e := range u.Entries {
		w := tensor.Weight{Data: tensor.New(buf, off+e.Off, e.DType, e.Shape...)}
		if e.Scale >= 0 {
			w.Scale = tensor.New(buf, off+e.Scale, tensor.F32, e.Shape[0])
		}
		p[e.Name] = w
	}
}

// Source gives a model its weights block by block. Streamer is the real one;
// tests and small models use Resident.
type Source interface {
	// Outer returns the weights outside the blocks, always there.
	Outer() Params
	// Plan announces the blocks of the next Acquires in order (a step is
	// 0..n-1, n-1..0; a validation pass 0..n-1), after those announced before.
	// What is announced early is fetched early. Acquires must follow the plan;
	// where nothing is announced a block is fetched on demand.
	Plan(blocks ...int)
	// Acquire returns block's weights for work queued on the compute stream
	// from now on. It queues a wait there and does not block the host.
	Acquire(block int) (Params, error)
	// Release says that the work queued so far is the last that reads them.
	Release(block int)
}
