package memory

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"longship/gpu"
	"longship/gpu/profile"
)

// MinSlots is the smallest ring: the two units of a double block are held
// together, and one more is needed for anything to be copied meanwhile.
const MinSlots = 3

// Options say how a Streamer holds its weights.
type Options struct {
	Streamed []bool // per unit; see Spread
	Slots    int    // ring depth in units, at least MinSlots; 0 takes MinSlots
	// Progress is told the bytes loaded so far; it may be nil.
	Progress func(done, total int64)
}

// Streamer is the Source that keeps some units on the device and streams the
// others from pinned host memory through a ring of device slots, ahead of the
// compute that needs them.
//
// Every slot has two events: ready, on the copy stream, which the compute
// stream waits for; and free, on the compute stream, which the next copy into
// the slot waits for. The host never waits. A slot keeps its unit until the
// room is needed, so what is in the ring where the forward turns into the
// backward, and where a step turns into the next, is used again.
//
// A Streamer is loaded by NewStreamer and bound once to the compute stream that
// will read the weights; from then on it belongs to the goroutine that queues
// the compute work.
type Streamer struct {
	dev     gpu.Device
	set     *WeightSet
	compute gpu.Stream
	copies  gpu.Stream

	outer    Params
	units    []placed
	blocks   [][]int  // units of a block
	names    []string // of the blocks, for traces
	waits    []string // what a block waits for
	slots    []slot
	slotSize int64
	plan     []access
	issued   int // accesses of plan that are on the device or on their way
	held     map[int]int
	resident gpu.Buffer
	ring     gpu.Buffer
	pinned   []gpu.Buffer

	stats   Stats
	measure *profile.Recorder // nil for none
	lane    *profile.Lane     // of copies
	ends    map[int]func()    // of the blocks in hand, for traces
}

// Stats counts what a Streamer has done.
type Stats struct {
	Copies      int   // units copied to the device
	CopiedBytes int64 // and their bytes
	Reused      int   // accesses of streamed units that were still in the ring
	Hits        int   // accesses of resident units
}

type placed struct {
	params Params     // of a resident unit
	host   gpu.Region // of a streamed unit
	slot   int        // where a streamed unit is, -1
}

type slot struct {
	unit   int       // -1: empty
	params Params    // the unit's weights in this slot
	ready  gpu.Event // the copy is done
	free   gpu.Event // the compute that read it is done; nil while nothing reads it
	users  int       // planned accesses that count on this slot, held ones included
}

type access struct{ block, unit int }

// NewStreamer loads the weights: resident units and the outer unit onto the
// device, streamed ones into pinned memory. It takes ownership of set.
func NewStreamer(ctx context.Context, dev gpu.Device, set *WeightSet, opt Options) (*Streamer, error) {
	s := &Streamer{dev: dev, set: set, outer: Params{}, held: map[int]int{}, ends: map[int]func(){}}
	if err := s.load(ctx, opt); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Streamer) load(ctx context.Context, opt Options) error {
	n := len(s.set.Units)
	if len(opt.Streamed) != n {
		return fmt.Errorf("streamer: %d residency flags for %d units", len(opt.Streamed), n)
	}
	depth := opt.Slots
	if depth == 0 {
		depth = MinSlots
	}
	if depth < MinSlots {
		return fmt.Errorf("streamer: a ring of %d units is too small; at least %d are needed", depth, MinSlots)
	}
	s.units = make([]placed, n)
	s.blocks = make([][]int, s.set.Blocks())
	for i := range s.blocks {
		s.names = append(s.names, fmt.Sprint("block ", i))
		s.waits = append(s.waits, fmt.Sprint("weights of block ", i))
	}
	var residentBytes, slotBytes, total int64
	residentBytes = s.set.Outer.Bytes
	for i, u := range s.set.Units {
		s.blocks[u.Block] = append(s.blocks[u.Block], i)
		s.units[i].slot = -1
		if opt.Streamed[i] {
			slotBytes = max(slotBytes, u.Bytes)
		} else {
			residentBytes += u.Bytes
		}
		total += u.Bytes
	}
	total += s.set.Outer.Bytes

	var err error
	if s.copies, err = s.dev.NewStream("weights"); err != nil {
		return err
	}
	if s.resident, err = s.dev.Alloc(residentBytes); err != nil {
		return fmt.Errorf("resident weights: %w", err)
	}
	if slotBytes > 0 {
		if s.ring, err = s.dev.Alloc(slotBytes * int64(depth)); err != nil {
			return fmt.Errorf("weight ring of %d units: %w", depth, err)
		}
		s.slotSize = slotBytes
		s.slots = make([]slot, depth)
		for i := range s.slots {
			s.slots[i] = slot{unit: -1, params: Params{}}
		}
	}
	if err := s.pin(opt.Streamed); err != nil {
		return err
	}
	return s.fill(ctx, opt, total)
}

// arenaPiece bounds one registration of pinned memory.
const arenaPiece = 2 << 30

// pin takes the pinned arena in pieces and gives each streamed unit its place.
func (s *Streamer) pin(streamed []bool) error {
	for i := 0; i < len(streamed); {
		var bytes int64
		j := i
		for ; j < len(streamed); j++ {
			if streamed[j] {
				if bytes > 0 && bytes+s.set.Units[j].Bytes > arenaPiece {
					break
				}
				bytes += s.set.Units[j].Bytes
			}
		}
		if bytes > 0 {
			buf, err := s.dev.AllocHost(bytes)
			if err != nil {
				return fmt.Errorf("pinned weights: %w", err)
			}
			s.pinned = append(s.pinned, buf)
			var off int64
			for k := i; k < j; k++ {
				if streamed[k] {
					s.units[k].host = gpu.Region{Buf: buf, Off: off, Len: s.set.Units[k].Bytes}
					off += s.set.Units[k].Bytes
				}
			}
		}
		i = j
	}
	return nil
}

// fill reads every unit to its place, several at a time.
func (s *Streamer) fill(ctx context.Context, opt Options, total int64) error {
	progress := newMeter(total, opt.Progress)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	var off int64
	place := func(u Unit, p Params) {
		at := off
		off += u.Bytes
		p.Bind(u, s.resident, at)
		g.Go(func() error {
			return s.toDevice(ctx, u, gpu.Region{Buf: s.resident, Off: at, Len: u.Bytes}, progress)
		})
	}
	place(s.set.Outer, s.outer)
	for i, u := range s.set.Units {
		if !opt.Streamed[i] {
			s.units[i].params = Params{}
			place(u, s.units[i].params)
			continue
		}
		host := s.units[i].host
		g.Go(func() error {
			if err := s.set.Read(ctx, u, host.Bytes()); err != nil {
				return err
			}
			progress.add(u.Bytes)
			return nil
		})
	}
	return g.Wait()
}

// toDevice reads a unit from the file to device memory: straight where the host
// can address it, else through two pinned pieces and the copy stream.
func (s *Streamer) toDevice(ctx context.Context, u Unit, dst gpu.Region, progress *meter) error {
	if s.set.empty() {
		return nil
	}
	if b := dst.Bytes(); b != nil {
		if err := s.set.Read(ctx, u, b); err != nil {
			return err
		}
		progress.add(u.Bytes)
		return nil
	}
	bounce, err := s.dev.AllocHost(2 * loadPiece)
	if err != nil {
		return fmt.Errorf("staging memory: %w", err)
	}
	defer bounce.Free()
	st, err := s.dev.NewStream("load " + u.Name)
	if err != nil {
		return err
	}
	defer st.Close()
	var done [2]gpu.Event
	k := 0
	err = s.set.Load(ctx, u, func(off int64, piece []byte) error {
		if done[k] != nil {
			if err := done[k].Await(ctx); err != nil {
				return err
			}
		}
		r := gpu.Region{Buf: bounce, Off: int64(k) * loadPiece, Len: int64(len(piece))}
		copy(r.Bytes(), piece)
		st.Copy(gpu.Region{Buf: dst.Buf, Off: dst.Off + off, Len: r.Len}, r)
		done[k] = st.Record()
		k = 1 - k
		progress.add(int64(len(piece)))
		return nil
	})
	return errors.Join(err, st.Sync())
}

// Bind names the stream that the work reading the weights is queued on. It must
// be called before the first Acquire.
func (s *Streamer) Bind(compute gpu.Stream) { s.compute = compute }

// Measure has the copies, and what the compute stream waits for them, measured
// by the recorder of that stream.
func (s *Streamer) Measure(r *profile.Recorder) {
	s.measure, s.lane = r, r.Lane("weights", s.copies)
}

// Outer returns the weights outside the blocks.
func (s *Streamer) Outer() Params { return s.outer }

// Stats returns the counts so far.
func (s *Streamer) Stats() Stats { return s.stats }

// Plan announces the blocks of the next Acquires, in order.
func (s *Streamer) Plan(blocks ...int) {
	for _, b := range blocks {
		for _, u := range s.blocks[b] {
			s.plan = append(s.plan, access{block: b, unit: u})
		}
	}
	s.pump()
}

// Acquire returns a block's weights and makes the compute stream wait for their
// copies. The block must be the next of the plan, where there is one.
func (s *Streamer) Acquire(block int) (Params, error) {
	if len(s.plan) == 0 {
		s.Plan(block)
	}
	units := s.blocks[block]
	for i, u := range units {
		if i >= len(s.plan) || s.plan[i] != (access{block, u}) {
			return nil, fmt.Errorf("streamer: block %d acquired, but the plan says block %d", block, s.plan[min(i, len(s.plan)-1)].block)
		}
	}
	if s.issued < len(units) {
		return nil, fmt.Errorf("streamer: block %d: its %d units do not fit a ring of %d while another block is held", block, len(units), len(s.slots))
	}
	s.plan = s.plan[len(units):]
	s.issued -= len(units)
	s.held[block]++

	s.ends[block] = s.measure.Block(s.names[block])
	p := Params{}
	var copied []gpu.Event
	for _, u := range units {
		src := s.units[u].params
		if src == nil {
			sl := &s.slots[s.units[u].slot]
			if sl.ready != nil {
				copied = append(copied, sl.ready)
			}
			src = sl.params
		} else {
			s.stats.Hits++
		}
		for name, w := range src {
			p[name] = w
		}
	}
	if len(copied) > 0 {
		s.measure.Wait(s.waits[block], func() {
			for _, e := range copied {
				s.compute.Wait(e)
			}
		})
	}
	s.pump()
	return p, nil
}

// Release says that the work queued on the compute stream so far is the last
// that reads the block's weights.
func (s *Streamer) Release(block int) {
	if s.held[block] == 0 {
		panic(fmt.Sprintf("streamer: block %d released but not held", block))
	}
	s.held[block]--
	s.ends[block]()
	var ev gpu.Event
	for _, u := range s.blocks[block] {
		if s.units[u].params != nil {
			continue
		}
		if ev == nil {
			ev = s.compute.Record()
		}
		sl := &s.slots[s.units[u].slot]
		sl.free = ev
		sl.users--
	}
	s.pump()
}

// pump queues copies for the planned accesses, in order, as far as slots allow.
func (s *Streamer) pump() {
	for s.issued < len(s.plan) {
		u := s.plan[s.issued].unit
		if s.units[u].params == nil && !s.place(u) {
			return
		}
		s.issued++
	}
}

// place makes sure that a streamed unit is in the ring, or on its way, and
// counts one more access on its slot. It is false where no slot can be taken.
func (s *Streamer) place(u int) bool {
	if i := s.units[u].slot; i >= 0 {
		s.slots[i].users++
		s.stats.Reused++
		return true
	}
	i := s.victim()
	if i < 0 {
		return false
	}
	sl := &s.slots[i]
	if sl.unit >= 0 {
		s.units[sl.unit].slot = -1
	}
	if sl.free != nil {
		s.copies.Wait(sl.free)
	}
	unit := s.set.Units[u]
	off := int64(i) * s.slotSize
	s.lane.Copy(unit.Name, unit.Bytes, func() {
		s.copies.Copy(gpu.Region{Buf: s.ring, Off: off, Len: unit.Bytes}, s.units[u].host)
	})
	clear(sl.params)
	sl.params.Bind(unit, s.ring, off)
	sl.unit, sl.free, sl.users = u, nil, 1
	sl.ready = s.copies.Record()
	s.units[u].slot = i
	s.stats.Copies++
	s.stats.CopiedBytes += unit.Bytes
	return true
}

// victim returns the slot whose unit is needed latest in the plan among those
// that nobody counts on, -1 where every slot is in use.
func (s *Streamer) victim() int {
	best, bestNext := -1, -1
	for i := range s.slots {
		sl := &s.slots[i]
		if sl.users > 0 {
			continue
		}
		next := len(s.plan) + 1
		if sl.unit >= 0 {
			for k := s.issued; k < len(s.plan); k++ {
				if s.plan[k].unit == sl.unit {
					next = k
					break
				}
			}
		} else {
			next++ // an empty slot before all others
		}
		if next > bestNext {
			best, bestNext = i, next
		}
	}
	return best
}

// Close waits for the copies and frees all memory. Calling it twice is allowed.
func (s *Streamer) Close() error {
	var errs []error
	if s.copies != nil {
		errs = append(errs, s.copies.Close())
	}
	for _, b := range append(s.pinned, s.resident, s.ring) {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	s.pinned, s.resident, s.ring = nil, nil, nil
	return errors.Join(append(errs, s.set.Close())...)
}

var _ Source = (*Streamer)(nil)
