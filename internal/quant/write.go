package quant

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/fxamacker/cbor/v2"
	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"

	"longship/cache/atomicfile"
	"longship/gpu/memory"
	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/ioretry"
	"longship/internal/weights"
)

// Options say how a transformer is stored.
type Options struct {
	QType    string                  // of the linear weights inside the blocks, one of QTypes
	Outer    string                  // of those outside
	Source   string                  // identity of the weights, kept in the file
	Progress func(done, total int64) // told the bytes of the source that are done, from several goroutines; may be nil

	keep bool // leave the source in the page cache: benchmarks read it again
}

// plan lays out the units of a transformer, from byte pageSize of the file on.
func plan(model *weights.Transformer, opt Options) (header, error) {
	h := header{Config: model.Config.JSON(), QType: opt.QType, Source: opt.Source}
	var err error
	if h.Outer, err = planUnit(model, model.Config.Outer(), opt.Outer); err != nil {
		return h, err
	}
	for _, u := range model.Config.Units() {
		unit, err := planUnit(model, u, opt.QType)
		if err != nil {
			return h, err
		}
		h.Units = append(h.Units, unit)
	}
	at := int64(pageSize)
	for _, u := range h.each() {
		u.Off = at
		at = align(at+u.Bytes, pageSize)
	}
	return h, nil
}

func planUnit(model *weights.Transformer, from flux2.Unit, qtype string) (memory.Unit, error) {
	dt, scaled, err := Storage(qtype)
	if err != nil {
		return memory.Unit{}, err
	}
	u := memory.Unit{Name: from.Name, Block: from.Block}
	for _, t := range from.Tensors {
		if t.Norm() {
			Place(&u, t.Name, normStorage(model.Weight(t.Name)), false, t.Shape...)
		} else {
			Place(&u, t.Name, dt, scaled, t.Shape...)
		}
	}
	return u, nil
}

// each returns the units in the order of the file.
func (h *header) each() []*memory.Unit {
	all := []*memory.Unit{&h.Outer}
	for i := range h.Units {
		all = append(all, &h.Units[i])
	}
	return all
}

// end returns where the last unit ends.
func (h *header) end() int64 {
	all := h.each()
	last := all[len(all)-1]
	return last.Off + last.Bytes
}

// Size returns the bytes of the file that Write would make, to a few KiB.
func Size(model *weights.Transformer, opt Options) (int64, error) {
	h, err := plan(model, opt)
	return h.end() + 1<<16, err
}

// Write stores a transformer in a quantised file at path. Units are made side by
// side, one a core, each row by row from the source's files. The file appears
// whole or not at all; see package atomicfile.
func Write(ctx context.Context, path string, model *weights.Transformer, opt Options) error {
	h, err := plan(model, opt)
	if err != nil {
		return err
	}
	err = atomicfile.Write(path, func(f *os.File) error { return writeFile(ctx, f, h, model, opt) })
	if err != nil {
		return fmt.Errorf("quantised file: %w", err)
	}
	return nil
}

func writeFile(ctx context.Context, f *os.File, h header, model *weights.Transformer, opt Options) error {
	if err := writeUnits(ctx, f, &h, model, opt); err != nil {
		return err
	}
	encoded, err := cbor.Marshal(h)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(encoded, h.end()); err != nil {
		return err
	}
	_, err = f.WriteAt(formatPrefix(h.end(), encoded), 0)
	return err
}

// writeUnits makes the units and sets their checksums.
func writeUnits(ctx context.Context, f io.WriterAt, h *header, model *weights.Transformer, opt Options) error {
	var total int64
	for _, name := range model.Names() {
		w := model.Weight(name)
		total += int64(w.Len()) * int64(w.DType().Bits()) / 8
	}
	var done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, u := range h.each() {
		g.Go(func() error {
			w := unitWriter{f: f, at: u.Off, keep: opt.keep, hash: blake3.New(), read: func(n int) {
				if now := done.Add(int64(n)); opt.Progress != nil {
					opt.Progress(now, total)
				}
			}}
			if err := w.unit(ctx, *u, model); err != nil {
				return err
			}
			u.Sum = [32]byte(w.hash.Sum(nil))
			return nil
		})
	}
	return g.Wait()
}

// unitWriter writes one unit from its first byte to its last.
type unitWriter struct {
	f    io.WriterAt
	at   int64
	keep bool
	hash *blake3.Hasher
	read func(bytes int)

	encoder Encoder
	codes   []byte
}

// pieceElements is how many weights are read, encoded and written at a time:
// few enough to stay in a core's cache from one to the next.
const pieceElements = 1 << 18

func (w *unitWriter) unit(ctx context.Context, u memory.Unit, model *weights.Transformer) error {
	start := w.at
	for _, e := range u.Entries {
		if err := w.fill(start + e.Off); err != nil {
			return err
		}
		from := model.Weight(e.Name)
		scales, err := w.entry(ctx, e, from)
		if err != nil {
			return err
		}
		if !w.keep {
			from.Drop()
		}
		if e.Scale >= 0 {
			if err := w.fill(start + e.Scale); err != nil {
				return err
			}
			if err := w.write(dtype.Bytes(scales)); err != nil {
				return err
			}
		}
	}
	return w.fill(start + u.Bytes)
}

// entry writes the codes of one weight and returns its scales.
func (w *unitWriter) entry(ctx context.Context, e memory.Entry, from weights.Weight) ([]float32, error) {
	scales := make([]float32, from.Rows())
	step := max(1, pieceElements/from.Cols())
	for lo := 0; lo < from.Rows(); lo += step {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		hi := min(lo+step, from.Rows())
		w.codes = grow(w.codes, (hi-lo)*from.Cols()*e.DType.Size())
		err := ioretry.Do(ctx, func() error {
			return w.encoder.Rows(w.codes, scales[lo:hi], from, lo, hi, e.DType)
		})
		if err != nil {
			return nil, err
		}
		if err := w.write(w.codes); err != nil {
			return nil, err
		}
		w.read((hi - lo) * from.Cols() * from.DType().Bits() / 8)
	}
	return scales, nil
}

// fill writes zeros up to the byte at of the file.
func (w *unitWriter) fill(at int64) error {
	var zeros [tensor.Align]byte
	return w.write(zeros[:at-w.at])
}

func (w *unitWriter) write(p []byte) error {
	if _, err := w.f.WriteAt(p, w.at); err != nil {
		return err
	}
	w.at += int64(len(p))
	_, err := w.hash.Write(p)
	return err
}
