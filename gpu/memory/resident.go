package memory

import (
	"context"
	"errors"
	"fmt"

	"longship/gpu"
)

// Resident is the Source that keeps all weights in one device buffer: the
// simplest there is, which a Streamer must equal bit for bit. It belongs to the
// goroutine that queues the compute work.
type Resident struct {
	layout
	buf gpu.Buffer
	set *WeightSet
}

// NewResident loads all weights. It takes ownership of set.
func NewResident(ctx context.Context, dev gpu.Device, set *WeightSet) (*Resident, error) {
	r := &Resident{set: set}
	if err := r.load(ctx, dev); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Resident) load(ctx context.Context, dev gpu.Device) error {
	total := r.set.Outer.Bytes
	for _, u := range r.set.Units {
		total += u.Bytes
	}
	var err error
	if r.buf, err = dev.Alloc(total); err != nil {
		return fmt.Errorf("resident weights: %w", err)
	}
	r.layout = place(r.set, r.buf)
	st, err := dev.NewStream("load weights")
	if err != nil {
		return err
	}
	err = r.fill(ctx, dev, st)
	return errors.Join(err, st.Close())
}

// fill reads unit after unit into page-locked memory and copies it over.
func (r *Resident) fill(ctx context.Context, dev gpu.Device, st gpu.Stream) error {
	var off int64
	for _, u := range append([]Unit{r.set.Outer}, r.set.Units...) {
		host, err := dev.AllocHost(u.Bytes)
		if err != nil {
			return fmt.Errorf("staging of unit %s: %w", u.Name, err)
		}
		err = r.set.Read(ctx, u, host.Host())
		if err == nil {
			st.Copy(gpu.Region{Buf: r.buf, Off: off, Len: u.Bytes}, gpu.Region{Buf: host, Len: u.Bytes})
			err = st.Sync()
		}
		if err = errors.Join(err, host.Free()); err != nil {
			return err
		}
		off += u.Bytes
	}
	return nil
}

// Layout returns the same weights without memory.
func (r *Resident) Layout() Source { return Layout(r.set) }

// Close frees the memory and closes the set. Calling it twice is allowed.
func (r *Resident) Close() error {
	var err error
	if r.buf != nil {
		err = r.buf.Free()
	}
	return errors.Join(err, r.set.Close())
}

// layout is a Source whose weights never move.
type layout struct {
	outer  Params
	blocks []Params
}

// Layout returns the weights of a set as they are shaped and typed, without
// memory: for a dry run that measures what a pass needs.
func Layout(set *WeightSet) Source {
	l := place(set, nil)
	return &l
}

// place binds all weights to a buffer, unit behind unit, the outer one first.
func place(set *WeightSet, buf gpu.Buffer) layout {
	l := layout{outer: Params{}, blocks: make([]Params, set.Blocks())}
	for i := range l.blocks {
		l.blocks[i] = Params{}
	}
	l.outer.Bind(set.Outer, buf, 0)
	off := set.Outer.Bytes
	for _, u := range set.Units {
		l.blocks[u.Block].Bind(u, buf, off)
		off += u.Bytes
	}
	return l
}

// Outer returns the weights outside the blocks.
func (l *layout) Outer() Params { return l.outer }

// Plan is not needed here.
func (l *layout) Plan(...int) {}

// Acquire returns a block's weights.
func (l *layout) Acquire(block int) (Params, error) { return l.blocks[block], nil }

// Release is not needed here.
func (l *layout) Release(int) {}

var _ Source = (*Resident)(nil)
